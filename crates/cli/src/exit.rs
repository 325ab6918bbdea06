//! Exit codes, and the failures that lead to them.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use dwell_client::OpenError;
use dwell_model::Invalid;
use dwell_store::Error;
use serde::Serialize;

/// The exit code of the process. Scripts rely on these numbers: `docs/cli.md` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Ok = 0,
    /// The server refused, or a file could not be read or written; of a file of messages, at least one line.
    Refused = 1,
    /// The command line is invalid; nothing was sent.
    Usage = 2,
    /// Nothing was found: an empty take, no such message, no such queue.
    Nothing = 3,
    /// No server answers.
    Unreachable = 4,
    /// It may or may not have happened.
    Unknown = 5,
    /// The server cannot start.
    CannotStart = 6,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// The command line's own errors; the server, the engine and the client have codes of their own. Each has a page in
/// `docs/errors/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// The command line is invalid.
    Usage,
    /// A file, or standard input, cannot be read.
    Input,
    /// Standard output cannot be written.
    Output,
    /// The file of answers cannot be read or written.
    Answers,
    /// The file of rejects cannot be written.
    Rejects,
    /// The file of answers belongs to another file of messages.
    ForeignAnswers,
    /// A line of the file is too long.
    LineTooLong,
    /// The system cannot start threads.
    Threads,
    /// The system does not let the process handle signals.
    Signals,
    /// The system has no randomness for a token.
    Randomness,
}

impl Own {
    /// The stable code of this kind: a word that programs may match on.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Own::Usage => "usage",
            Own::Input => "input",
            Own::Output => "output",
            Own::Answers => "answers",
            Own::Rejects => "rejects",
            Own::ForeignAnswers => "foreign_answers",
            Own::LineTooLong => "line_too_long",
            Own::Threads => "threads",
            Own::Signals => "signals",
            Own::Randomness => "randomness",
        }
    }
}

/// Why a subcommand failed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Failure {
    #[serde(skip)]
    pub(crate) exit: Exit,
    /// The stable code.
    pub(crate) code: String,
    /// What happened and what to do.
    pub(crate) detail: String,
    /// Whether the same command may succeed later.
    pub(crate) retryable: bool,
    /// The HTTP status of a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
}

impl Failure {
    /// A failure with this exit code.
    pub(crate) fn new(exit: Exit, code: &str, detail: impl Display) -> Failure {
        Failure { exit, code: code.to_owned(), detail: detail.to_string(), retryable: false, status: None }
    }

    /// The command line is invalid.
    pub(crate) fn usage(detail: impl Display) -> Failure {
        Failure::new(Exit::Usage, Own::Usage.code(), detail)
    }

    /// A file could not be read or written.
    pub(crate) fn file(code: &str, path: impl Display, error: &io::Error) -> Failure {
        Failure::new(Exit::Refused, code, format!("{path}: {error}"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = error.code();
        let status = match &error {
            Error::Unreachable { .. } | Error::BadAnswer { .. } | Error::OutcomeUnknown { .. } => None,
            _ => dwell_wire::lookup(code).map(|entry| entry.status),
        };
        let exit = match (&error, status) {
            (Error::Unreachable { .. } | Error::BadAnswer { .. }, _) => Exit::Unreachable,
            (Error::OutcomeUnknown { .. }, _) => Exit::Unknown,
            (_, Some(404)) => Exit::Nothing,
            _ => Exit::Refused,
        };
        let retryable = error.is_retryable();
        Failure { exit, code: code.to_owned(), detail: error.to_string(), retryable, status }
    }
}

impl From<dwell_delivery::Error> for Failure {
    fn from(error: dwell_delivery::Error) -> Failure {
        match error {
            dwell_delivery::Error::Store(error) => error.into(),
            // A worker refuses what was given on the command line.
            error => Failure::new(Exit::Usage, error.code(), error),
        }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        let exit = match &error {
            OpenError::Threads { .. } => Exit::Refused,
            _ => Exit::Usage,
        };
        Failure::new(exit, error.code(), error)
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Failure {
        Failure::new(Exit::Usage, invalid.code(), invalid)
    }
}

impl From<io::Error> for Failure {
    /// Standard output could not be written.
    fn from(error: io::Error) -> Failure {
        Failure::new(Exit::Refused, Own::Output.code(), format!("the output cannot be written: {error}"))
    }
}

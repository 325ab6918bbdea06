//! Why a call failed, and what to do.

use dwell_model::Invalid;
use thiserror::Error;

use crate::Problem;

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// A value that no server would accept; nothing was sent.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The server refused; it has changed nothing, except where the code is `outcome_unknown`.
    #[error("{}", .0.detail)]
    Refused(Box<Problem>),
    /// No connection came about, or a read was not answered: nothing has changed.
    #[error(
        "no dwell server answers at {server} ({reason}); start one with `dwell serve`, \
         or name another with --server or DWELL_SERVER"
    )]
    Unreachable {
        /// The address as it was given.
        server: Box<str>,
        /// What the operating system or the HTTP library says.
        reason: Box<str>,
    },
    /// The request was sent and no whole answer came: it may or may not have happened.
    #[error(
        "the outcome is unknown: {reason}; look before you repeat it (a put with the same token is safe)"
    )]
    OutcomeUnknown {
        /// What broke.
        reason: Box<str>,
    },
    /// The address is not one that this client can speak to.
    #[error("'{url}' is not a server's address: {reason}; write http://host:port")]
    BadServer {
        /// The address as it was given.
        url: Box<str>,
        /// What is wrong with it.
        reason: Box<str>,
    },
    /// The token, or what TLS needs, is of no use; nothing was sent.
    #[error("{reason}")]
    BadCredentials {
        /// What is wrong, without the secret itself.
        reason: Box<str>,
    },
    /// Something answered, but not as a dwell server of this version would.
    #[error("{server} answers, but not as a dwell server does: {reason}")]
    BadAnswer {
        /// The address as it was given.
        server: Box<str>,
        /// What was odd.
        reason: Box<str>,
    },
}

impl Error {
    /// The stable code: the server's own, or a word of this client for what never reached a server.
    pub fn code(&self) -> &str {
        match self {
            Error::Invalid(invalid) => invalid.code(),
            Error::Refused(problem) => &problem.code,
            Error::Unreachable { .. } => "unreachable",
            Error::OutcomeUnknown { .. } => "outcome_unknown",
            Error::BadServer { .. } => "bad_server",
            Error::BadCredentials { .. } => "bad_credentials",
            Error::BadAnswer { .. } => "bad_answer",
        }
    }

    /// The HTTP status of a refusal.
    pub fn status(&self) -> Option<u16> {
        self.problem().map(|problem| problem.status)
    }

    /// Whether the same call may succeed later, with nothing else changed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Refused(problem) => problem.retryable,
            Error::Unreachable { .. } | Error::OutcomeUnknown { .. } => true,
            Error::Invalid(_) | Error::BadServer { .. } => false,
            Error::BadCredentials { .. } | Error::BadAnswer { .. } => false,
        }
    }

    /// The server's refusal, if it is one.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Error::Refused(problem) => Some(problem),
            _ => None,
        }
    }
}

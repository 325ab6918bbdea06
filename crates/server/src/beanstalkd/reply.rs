//! Replies on the wire.

use std::fmt::{self, Write as _};

use bytes::BytesMut;
use dwell_model::{Invalid, Message};
use dwell_store::Error;

use crate::admission::ReservedBytes;

/// Replies of one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    BadFormat,
    Buried,
    DeadlineSoon,
    Deleted,
    Draining,
    ExpectedCrlf,
    InternalError,
    JobTooBig,
    Kicked,
    NotFound,
    NotIgnored,
    OutOfMemory,
    Paused,
    Released,
    TimedOut,
    Touched,
    UnknownCommand,
}

impl Word {
    const fn as_str(self) -> &'static str {
        match self {
            Word::BadFormat => "BAD_FORMAT",
            Word::Buried => "BURIED",
            Word::DeadlineSoon => "DEADLINE_SOON",
            Word::Deleted => "DELETED",
            Word::Draining => "DRAINING",
            Word::ExpectedCrlf => "EXPECTED_CRLF",
            Word::InternalError => "INTERNAL_ERROR",
            Word::JobTooBig => "JOB_TOO_BIG",
            Word::Kicked => "KICKED",
            Word::NotFound => "NOT_FOUND",
            Word::NotIgnored => "NOT_IGNORED",
            Word::OutOfMemory => "OUT_OF_MEMORY",
            Word::Paused => "PAUSED",
            Word::Released => "RELEASED",
            Word::TimedOut => "TIMED_OUT",
            Word::Touched => "TOUCHED",
            Word::UnknownCommand => "UNKNOWN_COMMAND",
        }
    }
}

/// beanstalkd has few replies for errors. What helps a client is whether to give up on the job (`NOT_FOUND`), to
/// correct the command, to retry later (`OUT_OF_MEMORY`), or to report it to a person.
impl From<&Error> for Word {
    fn from(error: &Error) -> Word {
        match error {
            Error::Invalid(Invalid::BodyTooLarge { .. }) => Word::JobTooBig,
            // Another tube name corrects it.
            Error::Invalid(_) | Error::QueueReserved { .. } => Word::BadFormat,
            Error::UnknownQueue { .. }
            | Error::MessageNotFound { .. }
            | Error::LeaseLost
            | Error::KeyTaken { .. }
            | Error::Leased { .. }
            | Error::Dead { .. }
            | Error::NotDead { .. }
            | Error::NotLeased { .. }
            | Error::LeaseChanged { .. } => Word::NotFound,
            Error::QueueFull { .. }
            | Error::TooManyQueues { .. }
            | Error::TooManyLeased { .. }
            | Error::TooManyWaiting { .. }
            | Error::DiskFull { .. }
            | Error::Overloaded { .. } => Word::OutOfMemory,
            _ => Word::InternalError,
        }
    }
}

/// Replies that are to be written.
#[derive(Debug, Default)]
pub(super) struct Replies {
    pub(super) bytes: BytesMut,
    /// Whether one of them reports that the store is full.
    pub(super) pushed_back: bool,
    /// Whether one of them hands over a lease, which runs.
    pub(super) urgent: bool,
    /// Room for large replies, from when they are made until they are written.
    room: Option<ReservedBytes>,
}

impl Replies {
    /// `held` was set aside for the replies that are added now.
    pub(super) fn hold(&mut self, held: ReservedBytes) {
        match &mut self.room {
            None => self.room = Some(held),
            Some(room) => room.absorb(held),
        }
    }

    /// Takes all replies, with their room.
    pub(super) fn split(&mut self) -> (BytesMut, Option<ReservedBytes>) {
        (self.bytes.split(), self.room.take())
    }

    /// Takes all replies, and the buffer with them.
    pub(super) fn take(&mut self) -> (BytesMut, Option<ReservedBytes>) {
        self.urgent = false;
        (std::mem::take(&mut self.bytes), self.room.take())
    }

    /// A reply of one word.
    pub(super) fn word(&mut self, word: Word) {
        self.pushed_back |= word == Word::OutOfMemory;
        self.line(format_args!("{}", word.as_str()));
    }

    /// The word on success, or that of the error.
    pub(super) fn outcome(&mut self, outcome: Result<Word, Error>) {
        self.word(outcome.unwrap_or_else(|error| Word::from(&error)));
    }

    /// A reply of one line.
    pub(super) fn line(&mut self, line: fmt::Arguments<'_>) {
        self.bytes.write_fmt(line).expect("a buffer in memory takes all");
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// `RESERVED` and the job.
    pub(super) fn reserved(&mut self, message: &Message) {
        self.urgent = true;
        self.job("RESERVED", message);
    }

    /// `FOUND` and the job.
    pub(super) fn found(&mut self, message: &Message) {
        self.job("FOUND", message);
    }

    fn job(&mut self, word: &str, message: &Message) {
        self.line(format_args!("{word} {} {}", message.number, message.body.len()));
        self.bytes.extend_from_slice(&message.body);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// `OK` and a YAML document.
    pub(super) fn yaml(&mut self, text: &str) {
        self.line(format_args!("OK {}", text.len()));
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// `OK` and a YAML list of names, which need no quotes.
    pub(super) fn names<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let mut text = String::from("---\n");
        for name in names {
            text.push_str("- ");
            text.push_str(name);
            text.push('\n');
        }
        self.yaml(&text);
    }
}

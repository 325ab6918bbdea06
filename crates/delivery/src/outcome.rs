//! The result of a handler: an outcome, or a failure that becomes one.

use std::fmt;
use std::time::Duration;

use crate::breaker::Report;

/// The outcome of a handled message.
///
/// Three kinds of failure differ in what they cost the message. Its own ([`Retry`](Outcome::Retry), [`Bury`](Outcome::Bury)) spends an attempt
/// or ends it; the destination's ([`Destination`](Outcome::Destination)) and the worker's ([`Release`](Outcome::Release)) spend none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done: the message is acked.
    Done,
    /// The attempt has failed: the message is retried, or is dead if that was its last attempt.
    Retry {
        /// The error, kept with the message.
        error: String,
        /// The delay before the next attempt, in place of the lane's ladder or the queue's backoff.
        after: Option<Duration>,
    },
    /// Given back, with no attempt spent.
    Release {
        /// The delay; `None` for at once.
        after: Option<Duration>,
    },
    /// It will never succeed: it is buried.
    Bury {
        /// The reason, kept with the message.
        reason: String,
    },
    /// The destination has failed, and not the message: given back, with no attempt spent. The lane's breaker receives
    /// the report.
    Destination {
        /// The kind of failure.
        report: Report,
        /// The error, kept with the message if it turns out to be its own failure.
        error: String,
    },
}

/// Why a handler has failed. `?` turns any error into a retry; the other kinds have constructors.
///
/// ```
/// use dwell_delivery::{Failure, Job};
///
/// async fn close_order(job: Job) -> Result<(), Failure> {
///     let order: u64 = job.text()?.parse()?;
///     if order == 0 {
///         return Err(Failure::permanent("there is no order 0"));
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(Outcome);

impl Failure {
    /// The attempt has failed; another one may succeed.
    pub fn retry(error: impl fmt::Display) -> Failure {
        Failure(Outcome::Retry { error: error.to_string(), after: None })
    }

    /// No attempt will succeed: the message is buried.
    pub fn permanent(reason: impl fmt::Display) -> Failure {
        Failure(Outcome::Bury { reason: reason.to_string() })
    }

    /// The destination refuses connections or logins, or broke the connection.
    pub fn refused(error: impl fmt::Display) -> Failure {
        Failure::destination(Report::Refused, error)
    }

    /// The destination has timed out.
    pub fn timed_out(error: impl fmt::Display) -> Failure {
        Failure::destination(Report::TimedOut, error)
    }

    /// The destination asks that nothing be sent for this long.
    pub fn throttled(wait: Duration, error: impl fmt::Display) -> Failure {
        Failure::destination(Report::Throttled { for_ms: crate::whole_ms(wait) }, error)
    }

    fn destination(report: Report, error: impl fmt::Display) -> Failure {
        Failure(Outcome::Destination { report, error: error.to_string() })
    }

    /// Sets the delay before the next attempt, in place of the ladder or the backoff. It affects only a
    /// [`retry`](Failure::retry).
    #[must_use]
    pub fn after(self, delay: Duration) -> Failure {
        match self.0 {
            Outcome::Retry { error, .. } => Failure(Outcome::Retry { error, after: Some(delay) }),
            other => Failure(other),
        }
    }
}

// `?` converts any error into a `Failure`, so `Failure` cannot implement `Error` itself.
impl<E: std::error::Error> From<E> for Failure {
    /// A retry, with the text of the error and its sources.
    fn from(error: E) -> Failure {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            // Many errors include the text of their source.
            if !text.contains(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            source = cause.source();
        }
        Failure::retry(text)
    }
}

/// A return value of a handler: nothing, an [`Outcome`], or a result whose error becomes a [`Failure`].
pub trait IntoOutcome {
    /// The outcome of the message.
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Outcome::Done
    }
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl IntoOutcome for Failure {
    fn into_outcome(self) -> Outcome {
        self.0
    }
}

impl<T: IntoOutcome, E: Into<Failure>> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(value) => value.into_outcome(),
            Err(error) => error.into().0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_a_retry_unless_it_is_permanent() {
        let parsed: Result<(), std::num::ParseIntError> = "x".parse::<u8>().map(drop);
        let retry = Outcome::Retry { error: "invalid digit found in string".into(), after: None };
        assert_eq!(parsed.into_outcome(), retry);
        let permanent: Result<(), Failure> = Err(Failure::permanent("never"));
        assert_eq!(permanent.into_outcome(), Outcome::Bury { reason: "never".into() });
        assert_eq!(
            Ok::<_, Failure>(Outcome::Release { after: None }).into_outcome(),
            Outcome::Release { after: None }
        );
        assert_eq!(Ok::<_, Failure>(()).into_outcome(), Outcome::Done);
    }

    #[test]
    fn a_delay_is_that_of_a_retry_alone() {
        let minute = Duration::from_secs(60);
        let retry = Outcome::Retry { error: "x".into(), after: Some(minute) };
        assert_eq!(Failure::retry("x").after(minute).into_outcome(), retry);
        assert_eq!(Failure::permanent("x").after(minute), Failure::permanent("x"));
    }

    #[test]
    fn an_error_is_told_with_its_sources_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("the order cannot be read")]
        struct Outer(#[source] std::num::ParseIntError);
        let outer = Outer("x".parse::<u8>().unwrap_err());
        let expected = "the order cannot be read: invalid digit found in string";
        assert_eq!(Failure::from(outer), Failure::retry(expected));
    }
}

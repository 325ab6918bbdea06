//! A schedule's definition, from a file or over HTTP.

use dwell_delivery::Error;
use dwell_delivery::schedule::{Dialect, Every, Missed, Overlap, Schedule, Times};
use dwell_model::Headers;
use dwell_store::Bytes;

/// The fields that were given of a schedule. The others have the library's defaults.
#[derive(Debug, Default)]
pub(crate) struct Definition {
    pub(crate) queue: Option<String>,
    pub(crate) cron: Option<String>,
    pub(crate) dialect: Option<Dialect>,
    pub(crate) zone: Option<String>,
    pub(crate) every_ms: Option<u64>,
    pub(crate) body: Bytes,
    pub(crate) headers: Headers,
    pub(crate) missed: Missed,
    pub(crate) overlap: Overlap,
    pub(crate) jitter_ms: u64,
}

/// Why the fields do not make a schedule.
#[derive(Debug)]
pub(crate) enum Undefined {
    /// A field is missing: what is needed.
    Missing(&'static str),
    /// Two fields exclude each other: the key of one of them, and what to do.
    Conflict(&'static str, &'static str),
    /// The library refuses it.
    Refused(Error),
}

impl From<Error> for Undefined {
    fn from(error: Error) -> Undefined {
        Undefined::Refused(error)
    }
}

impl Definition {
    /// Sets what happens to missed instants.
    pub(crate) fn missed(&mut self, text: &str) -> Result<(), String> {
        self.missed = word(text, &Missed::ALL, Missed::as_str)?;
        Ok(())
    }

    /// Sets what happens to runs that overlap.
    pub(crate) fn overlap(&mut self, text: &str) -> Result<(), String> {
        self.overlap = word(text, &Overlap::ALL, Overlap::as_str)?;
        Ok(())
    }

    /// Builds the schedule with this name. Whether it can ever fire is not checked.
    pub(crate) fn schedule(self, name: &str) -> Result<Schedule, Undefined> {
        let Definition { queue, cron, dialect, zone, every_ms, body, headers, missed, overlap, jitter_ms } =
            self;
        let Some(queue) = queue else {
            return Err(Undefined::Missing("the 'queue' that its runs are put into"));
        };
        let times = match (cron, every_ms) {
            (None, None) => return Err(Undefined::Missing("'cron' or 'every': when it runs")),
            (Some(_), Some(_)) => {
                return Err(Undefined::Conflict(
                    "every",
                    "either 'cron' or 'every' says when it runs; not both",
                ));
            }
            (Some(cron), None) => Times::cron(&cron, dialect, zone.as_deref().unwrap_or("UTC"))?,
            (None, Some(_)) if dialect.is_some() => {
                return Err(Undefined::Conflict("dialect", "'dialect' is for 'cron'; 'every' has none"));
            }
            (None, Some(_)) if zone.is_some() => {
                return Err(Undefined::Conflict(
                    "zone",
                    "'zone' is for 'cron'; 'every' counts from 1970 in UTC",
                ));
            }
            (None, Some(ms)) => Times::Every(Every::new(ms)?),
        };
        let schedule = Schedule::new(name, &queue, times)?;
        Ok(schedule.body(body).headers(headers).missed(missed).overlap(overlap).jitter_ms(jitter_ms))
    }
}

/// Parses one of a list of words.
pub(crate) fn word<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, String> {
    all.iter().copied().find(|one| name(*one) == text).ok_or_else(|| {
        let words: Vec<String> = all.iter().map(|one| format!("\"{}\"", name(*one))).collect();
        format!("this is {}", words.join(" or "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(definition: Definition) -> &'static str {
        match definition.schedule("s").unwrap_err() {
            Undefined::Missing(_) => "missing",
            Undefined::Conflict(key, _) => key,
            Undefined::Refused(error) => error.code(),
        }
    }

    #[test]
    fn halves_and_contradictions_are_told_apart() {
        let of = || Definition { queue: Some("q".into()), ..Definition::default() };
        let cron = |cron: &str| Definition { cron: Some(cron.into()), ..of() };
        assert_eq!(refusal(Definition { every_ms: Some(5_000), ..Definition::default() }), "missing");
        assert_eq!(refusal(of()), "missing");
        assert_eq!(refusal(Definition { every_ms: Some(5_000), ..cron("* * * * *") }), "every");
        let every = || Definition { every_ms: Some(5_000), ..of() };
        assert_eq!(refusal(Definition { zone: Some("UTC".into()), ..every() }), "zone");
        assert_eq!(refusal(Definition { dialect: Some(Dialect::Unix), ..every() }), "dialect");
        assert_eq!(refusal(Definition { every_ms: Some(5), ..of() }), "invalid_schedule");
        assert_eq!(refusal(cron("x")), "malformed_cron");
        assert_eq!(refusal(cron("0 0 9 ? * 2")), "ambiguous_dialect");
        assert_eq!(
            refusal(Definition { zone: Some("Mars/Olympus".into()), ..cron("* * * * *") }),
            "unknown_zone"
        );
        assert_eq!(
            refusal(Definition { queue: Some("dwell:schedules".into()), ..every() }),
            "queue_reserved"
        );
        assert!(every().schedule("s").is_ok() && cron("0 9 * * MON").schedule("s").is_ok());
    }

    #[test]
    fn words_are_their_own() {
        let mut definition = Definition::default();
        for missed in Missed::ALL {
            definition.missed(missed.as_str()).unwrap();
            assert_eq!(definition.missed, missed);
        }
        for overlap in Overlap::ALL {
            definition.overlap(overlap.as_str()).unwrap();
            assert_eq!(definition.overlap, overlap);
        }
        let refused = definition.missed("never").unwrap_err();
        assert_eq!(refused, "this is \"one\" or \"skip\" or \"all\"");
    }
}

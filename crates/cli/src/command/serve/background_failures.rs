//! Logs failures in the background of the engine: when one begins, when its reason changes, and when it is over.

use std::collections::BTreeMap;
use std::time::Duration;

use dwell_engine::{BackgroundFailure, BackgroundWork, Engine};
use tokio::task::JoinHandle;

/// The interval at which the engine is checked.
const EVERY: Duration = Duration::from_secs(5);

/// The task that checks. It ends when this is dropped.
pub(super) struct FailureWatch(JoinHandle<()>);

impl FailureWatch {
    pub(super) fn begin(engine: Engine) -> FailureWatch {
        FailureWatch(tokio::spawn(async move {
            let mut reported = Reported::default();
            loop {
                tokio::time::sleep(EVERY).await;
                for line in reported.news(engine.background_failures()) {
                    match line {
                        LogLine::Fails(work, reason) => {
                            tracing::warn!(work = work.word(), "work in the background fails: {reason}");
                        }
                        LogLine::IsOver(work) => {
                            tracing::info!(work = work.word(), "work in the background goes on");
                        }
                    }
                }
            }
        }))
    }
}

impl Drop for FailureWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A line of the log.
#[derive(Debug, PartialEq, Eq)]
enum LogLine {
    Fails(BackgroundWork, String),
    IsOver(BackgroundWork),
}

/// The last reason that was logged for each kind of work.
#[derive(Debug, Default)]
struct Reported(BTreeMap<BackgroundWork, String>);

impl Reported {
    /// Returns what has changed since the last call.
    fn news(&mut self, background_failures: Vec<BackgroundFailure>) -> Vec<LogLine> {
        let now: BTreeMap<BackgroundWork, String> =
            background_failures.into_iter().map(|trouble| (trouble.work, trouble.reason)).collect();
        let over = self.0.keys().filter(|work| !now.contains_key(work)).map(|work| LogLine::IsOver(*work));
        let new = now.iter().filter(|(work, reason)| self.0.get(work) != Some(reason));
        let news = over.chain(new.map(|(work, reason)| LogLine::Fails(*work, reason.clone()))).collect();
        self.0 = now;
        news
    }
}

#[cfg(test)]
mod tests {
    use dwell_model::Timestamp;

    use super::*;

    #[test]
    fn each_trouble_is_said_once_and_when_it_is_over() {
        let trouble = |work, reason: &str, times| {
            let since = Timestamp::MIN;
            BackgroundFailure { work, reason: reason.to_owned(), since, times }
        };
        let fails = |work, reason: &str| LogLine::Fails(work, reason.to_owned());
        let mut reported = Reported::default();
        assert_eq!(reported.news(Vec::new()), []);
        let flush = |times| trouble(BackgroundWork::Flush, "no room", times);
        assert_eq!(reported.news(vec![flush(1)]), [fails(BackgroundWork::Flush, "no room")]);
        assert_eq!(reported.news(vec![flush(7)]), []);
        let keys = trouble(BackgroundWork::MergeKeys, "keys-1 is damaged", 1);
        assert_eq!(
            reported.news(vec![flush(8), keys]),
            [fails(BackgroundWork::MergeKeys, "keys-1 is damaged")]
        );
        let keys = trouble(BackgroundWork::MergeKeys, "keys-2 is damaged", 2);
        let expected =
            [LogLine::IsOver(BackgroundWork::Flush), fails(BackgroundWork::MergeKeys, "keys-2 is damaged")];
        assert_eq!(reported.news(vec![keys]), expected);
        assert_eq!(reported.news(Vec::new()), [LogLine::IsOver(BackgroundWork::MergeKeys)]);
        assert_eq!(reported.news(Vec::new()), []);
    }
}

//! What fails in the background of the engine, said in the log: once when it begins, again when its reason changes, and when
//! it is over.

use std::collections::BTreeMap;
use std::time::Duration;

use dwell_engine::{Engine, Trouble, Work};
use tokio::task::JoinHandle;

/// So often it is looked.
const EVERY: Duration = Duration::from_secs(5);

/// Looks, until it is dropped.
pub(super) struct Watch(JoinHandle<()>);

impl Watch {
    pub(super) fn begin(engine: Engine) -> Watch {
        Watch(tokio::spawn(async move {
            let mut told = Told::default();
            loop {
                tokio::time::sleep(EVERY).await;
                for line in told.news(engine.troubles()) {
                    match line {
                        Line::Fails(work, reason) => {
                            tracing::warn!(work = work.word(), "work in the background fails: {reason}");
                        }
                        Line::IsOver(work) => {
                            tracing::info!(work = work.word(), "work in the background goes on");
                        }
                    }
                }
            }
        }))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Something to be said.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Fails(Work, String),
    IsOver(Work),
}

/// What was said.
#[derive(Debug, Default)]
struct Told(BTreeMap<Work, String>);

impl Told {
    /// What of this was not said yet.
    fn news(&mut self, troubles: Vec<Trouble>) -> Vec<Line> {
        let now: BTreeMap<Work, String> =
            troubles.into_iter().map(|trouble| (trouble.work, trouble.reason)).collect();
        let over = self.0.keys().filter(|work| !now.contains_key(work)).map(|work| Line::IsOver(*work));
        let new = now.iter().filter(|(work, reason)| self.0.get(work) != Some(reason));
        let news = over.chain(new.map(|(work, reason)| Line::Fails(*work, reason.clone()))).collect();
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
            Trouble { work, reason: reason.to_owned(), since, times }
        };
        let fails = |work, reason: &str| Line::Fails(work, reason.to_owned());
        let mut told = Told::default();
        assert_eq!(told.news(Vec::new()), []);
        let flush = |times| trouble(Work::Flush, "no room", times);
        assert_eq!(told.news(vec![flush(1)]), [fails(Work::Flush, "no room")]);
        assert_eq!(told.news(vec![flush(7)]), []);
        let keys = trouble(Work::MergeKeys, "keys-1 is damaged", 1);
        assert_eq!(told.news(vec![flush(8), keys]), [fails(Work::MergeKeys, "keys-1 is damaged")]);
        let keys = trouble(Work::MergeKeys, "keys-2 is damaged", 2);
        let expected = [Line::IsOver(Work::Flush), fails(Work::MergeKeys, "keys-2 is damaged")];
        assert_eq!(told.news(vec![keys]), expected);
        assert_eq!(told.news(Vec::new()), [Line::IsOver(Work::MergeKeys)]);
        assert_eq!(told.news(Vec::new()), []);
    }
}

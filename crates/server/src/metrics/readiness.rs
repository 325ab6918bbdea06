//! Whether the store serves, as of at most a second ago. Anyone may ask without a token, at any rate.
//!
//! Ground rules:
//! 1. An answer is valid for a second, whatever it is.
//! 2. There is one call to the store at a time: concurrent callers wait for its answer. It goes on when its caller
//!    disconnects, so that callers who come and go do not cause more calls.

use std::sync::Arc;
use std::time::Duration;

use dwell_store::{Error, Result};
use dwell_time::Clock;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// The timeout of the cheapest call to the store; a slower store is not ready.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long an answer is valid, in milliseconds.
const GOOD_MS: u64 = 1_000;

/// The last answer, and its time on the monotonic clock.
type LastAnswer = Option<(u64, Result<()>)>;

/// The last answer. Locked during a call.
#[derive(Debug, Default)]
pub(super) struct Readiness(Arc<Mutex<LastAnswer>>);

impl Readiness {
    /// The answer to `question`, or a recent one.
    pub(super) async fn ask(
        &self,
        clock: &Arc<dyn Clock>,
        question: impl Future<Output = Result<()>> + Send + 'static,
    ) -> Result<()> {
        let mut last = Arc::clone(&self.0).lock_owned().await;
        if let Some((heard_ms, answer)) = &*last
            && clock.now().mono_ms.saturating_sub(*heard_ms) < GOOD_MS
        {
            return answer.clone();
        }
        let clock = Arc::clone(clock);
        let asked = tokio::spawn(async move {
            let answer = timeout(PATIENCE, question).await.unwrap_or_else(|_| {
                let reason = format!("the store has not answered within {} s", PATIENCE.as_secs());
                Err(Error::Unavailable { reason: reason.into() })
            });
            *last = Some((clock.now().mono_ms, answer.clone()));
            answer
        });
        // The task ends early only with the runtime, or by a panic of the store.
        asked.await.unwrap_or(Err(Error::Closed))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use dwell_model::Timestamp;
    use dwell_time::ManualClock;
    use tokio::sync::Notify;

    use super::*;

    struct Fixture {
        readiness: Readiness,
        manual: ManualClock,
        clock: Arc<dyn Clock>,
        questions: Arc<AtomicUsize>,
        answer: Arc<Notify>,
    }

    impl Fixture {
        fn new() -> Fixture {
            let manual = ManualClock::new(Timestamp::MIN);
            let clock: Arc<dyn Clock> = Arc::new(manual.clone());
            Fixture {
                readiness: Readiness::default(),
                manual,
                clock,
                questions: Arc::default(),
                answer: Arc::default(),
            }
        }

        /// Calls a store that answers when the test allows it.
        fn ask(&self, answer: Result<()>) -> impl Future<Output = Result<()>> {
            let (questions, answered) = (Arc::clone(&self.questions), Arc::clone(&self.answer));
            self.readiness.ask(&self.clock, async move {
                questions.fetch_add(1, Ordering::SeqCst);
                answered.notified().await;
                answer
            })
        }

        fn questions(&self) -> usize {
            self.questions.load(Ordering::SeqCst)
        }

        async fn is_asked(&self, times: usize) {
            let asked = async {
                while self.questions() < times {
                    tokio::task::yield_now().await;
                }
            };
            timeout(PATIENCE, asked).await.unwrap();
        }
    }

    #[tokio::test]
    async fn it_is_asked_once_a_second_whatever_it_answers_and_by_how_many() {
        let bed = Fixture::new();
        for (round, answer) in [Ok(()), Err(Error::Closed), Ok(())].into_iter().enumerate() {
            let probes = futures_util::future::join_all((0..50).map(|_| bed.ask(answer.clone())));
            let (answers, ()) = tokio::join!(probes, async {
                bed.is_asked(round + 1).await;
                bed.answer.notify_one();
            });
            assert_eq!(answers, vec![answer.clone(); 50]);
            bed.manual.advance(GOOD_MS - 1);
            assert_eq!(bed.ask(Err(Error::Closed)).await, answer, "what was heard is good yet");
            assert_eq!(bed.questions(), round + 1);
            bed.manual.advance(1);
        }
    }

    #[tokio::test]
    async fn those_who_come_and_go_do_not_ask_more_often() {
        let bed = Fixture::new();
        for _ in 0..20 {
            let mut probe = Box::pin(bed.ask(Ok(())));
            tokio::select! {
                biased;
                answer = &mut probe => panic!("nobody has answered it: {answer:?}"),
                () = std::future::ready(()) => {}
            }
            bed.is_asked(1).await;
        }
        bed.answer.notify_one();
        assert_eq!(bed.ask(Err(Error::Closed)).await, Ok(()));
        assert_eq!(bed.questions(), 1);
    }
}

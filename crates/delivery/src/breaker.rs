//! The circuit breaker of one destination: while it is down, no message is sent, and no message loses an attempt.

use dwell_model::MessageId;

use crate::jitter;

/// The number of consecutive timeouts that open the breaker.
pub const TIMEOUTS_TO_OPEN: u32 = 5;
/// How often a message may break the connection to a destination that is up before that counts as its own failure.
pub const BREAKS_OF_A_MESSAGE: u32 = 3;
/// The shortest time to a probe, in milliseconds.
pub const FIRST_PROBE_MS: u64 = 100;
/// The longest time between two probes, in milliseconds.
pub const LAST_PROBE_MS: u64 = 30_000;
/// The maximum number of messages whose breaks are remembered. Past it the oldest is forgotten, and starts again with
/// no breaks.
const REMEMBERED: usize = 1_024;

/// A closed, open or half-open breaker. It reads no clock: `now_ms` is monotonic.
///
/// While open, it admits nothing. When a probe has passed, or without a probe when its time has come, it is half open
/// and admits one message at a time. The first answer closes it.
#[derive(Debug)]
pub struct Breaker {
    state: BreakerState,
    /// Whether the destination can be probed without a message.
    has_probe: bool,
    timeouts: u32,
    /// The number of times that it has opened since the last answer: the higher, the longer the wait for the next
    /// probe.
    openings: u32,
    suspicions: Vec<Suspicion>,
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BreakerState {
    Closed,
    Open { probe_at_ms: u64 },
    Probing,
    HalfOpen { out: Option<MessageId> },
}

/// A message that has broken the connection.
#[derive(Clone, Copy, Debug)]
struct Suspicion {
    id: MessageId,
    /// The number of breaks while the destination was up.
    breaks: u32,
    /// Whether the destination has answered other messages since.
    answered_since: bool,
}

/// What may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Any number.
    Any,
    /// One message.
    One,
    /// Nothing.
    None,
}

/// The result of sending a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// An answer, including one that refuses this message alone.
    Answered,
    /// No connection, a failed login, or a connection that broke.
    Refused,
    /// Too many requests: nothing should be sent for a time.
    Throttled {
        /// The time in milliseconds from now.
        for_ms: u64,
    },
    /// No answer in time.
    TimedOut,
    /// Nothing is known: the message was not sent, or its handler was dropped.
    Unknown,
}

/// Whose failure a result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The destination's, if any: no attempt is spent.
    Destination,
    /// The message's: it breaks a destination that is up.
    Message,
}

impl Breaker {
    /// A closed breaker. `has_probe` says whether the destination can be probed without a message; `seed` varies the
    /// jitter of probes between breakers.
    pub fn new(has_probe: bool, seed: u64) -> Breaker {
        Breaker {
            state: BreakerState::Closed,
            has_probe,
            timeouts: 0,
            openings: 0,
            suspicions: Vec::new(),
            seed,
        }
    }

    /// What may be sent now.
    pub fn admission(&self) -> Admission {
        match self.state {
            BreakerState::Closed => Admission::Any,
            BreakerState::HalfOpen { out: None } => Admission::One,
            BreakerState::HalfOpen { out: Some(_) } | BreakerState::Open { .. } | BreakerState::Probing => {
                Admission::None
            }
        }
    }

    /// The word for metrics: `closed`, `open`, `half_open`.
    pub fn state(&self) -> &'static str {
        match self.state {
            BreakerState::Closed => "closed",
            BreakerState::Open { .. } | BreakerState::Probing => "open",
            BreakerState::HalfOpen { .. } => "half_open",
        }
    }

    /// When to call [`wake`](Breaker::wake): the time of the next probe.
    pub fn wake_at_ms(&self) -> Option<u64> {
        match self.state {
            BreakerState::Open { probe_at_ms } => Some(probe_at_ms),
            _ => None,
        }
    }

    /// Advances the time. Returns whether to probe the destination now; then [`probed`](Breaker::probed) is called with
    /// the outcome.
    pub fn wake(&mut self, now_ms: u64) -> bool {
        match self.state {
            BreakerState::Open { probe_at_ms } if probe_at_ms <= now_ms && self.has_probe => {
                self.state = BreakerState::Probing;
                true
            }
            BreakerState::Open { probe_at_ms } if probe_at_ms <= now_ms => {
                self.state = BreakerState::HalfOpen { out: None };
                false
            }
            _ => false,
        }
    }

    /// Reports the outcome of a probe.
    pub fn probed(&mut self, has_passed: bool, now_ms: u64) {
        if self.state != BreakerState::Probing {
            return;
        }
        if has_passed {
            self.state = BreakerState::HalfOpen { out: None };
        } else {
            self.open(now_ms, 0);
        }
    }

    /// Records that this message is sent. It was [admitted](Breaker::admission), or was taken before the breaker
    /// opened.
    pub fn sent(&mut self, id: MessageId) {
        if let BreakerState::HalfOpen { out: out @ None } = &mut self.state {
            *out = Some(id);
        }
    }

    /// Reports the result of a message that was sent, and returns whose failure it was, if it was one.
    pub fn report(&mut self, id: MessageId, report: Report, now_ms: u64) -> Blame {
        let was_trial = matches!(self.state, BreakerState::HalfOpen { out: Some(out) } if out == id);
        match report {
            Report::Unknown => {
                if was_trial {
                    self.state = BreakerState::HalfOpen { out: None };
                }
                Blame::Destination
            }
            Report::Answered => {
                self.timeouts = 0;
                self.suspicions.retain(|suspicion| suspicion.id != id);
                self.suspicions.iter_mut().for_each(|suspicion| suspicion.answered_since = true);
                if was_trial {
                    self.openings = 0;
                    self.state = BreakerState::Closed;
                }
                Blame::Destination
            }
            Report::Throttled { for_ms } => {
                if was_trial || self.state == BreakerState::Closed {
                    self.open(now_ms, for_ms);
                } else if let BreakerState::Open { probe_at_ms } = &mut self.state {
                    // It was in flight when the breaker opened, and its answer asks for more time than the one that
                    // opened it.
                    *probe_at_ms = (*probe_at_ms).max(now_ms.saturating_add(for_ms));
                }
                Blame::Destination
            }
            Report::Refused | Report::TimedOut => self.broken(id, report, was_trial, now_ms),
        }
    }

    fn broken(&mut self, id: MessageId, report: Report, was_trial: bool, now_ms: u64) -> Blame {
        // What was in flight when it opened adds nothing.
        if !was_trial && self.state != BreakerState::Closed {
            return Blame::Destination;
        }
        if self.suspect(id, was_trial && self.has_probe) >= BREAKS_OF_A_MESSAGE {
            self.suspicions.retain(|suspicion| suspicion.id != id);
            if was_trial {
                self.state = BreakerState::HalfOpen { out: None };
            }
            return Blame::Message;
        }
        self.timeouts = if report == Report::TimedOut { self.timeouts + 1 } else { 0 };
        if was_trial || report == Report::Refused || self.timeouts >= TIMEOUTS_TO_OPEN {
            self.open(now_ms, 0);
        }
        Blame::Destination
    }

    /// Records that this message broke the connection. Returns how often it has done so while the destination was known
    /// to be up: by a probe just before (`is_proven`), or by answers to others since its last break.
    fn suspect(&mut self, id: MessageId, is_proven: bool) -> u32 {
        if let Some(known) = self.suspicions.iter_mut().find(|suspicion| suspicion.id == id) {
            known.breaks += u32::from(is_proven || known.answered_since);
            known.answered_since = false;
            return known.breaks;
        }
        if self.suspicions.len() == REMEMBERED {
            self.suspicions.remove(0);
        }
        let breaks = u32::from(is_proven);
        self.suspicions.push(Suspicion { id, breaks, answered_since: false });
        breaks
    }

    fn open(&mut self, now_ms: u64, at_least_ms: u64) {
        let longest = FIRST_PROBE_MS.saturating_mul(1 << self.openings.min(20)).min(LAST_PROBE_MS);
        let parts: [&[u8]; 2] = [&self.seed.to_le_bytes(), &self.openings.to_le_bytes()];
        // At least 80 % of it, and never earlier than the first probe.
        let wait = jitter::shortened(longest, 20, &parts).max(FIRST_PROBE_MS).max(at_least_ms);
        self.openings = self.openings.saturating_add(1);
        self.timeouts = 0;
        self.state = BreakerState::Open { probe_at_ms: now_ms.saturating_add(wait) };
    }
}

#[cfg(test)]
mod tests {
    use dwell_model::Timestamp;
    use proptest::prelude::*;

    use super::*;

    fn id(counter: u64) -> MessageId {
        MessageId::new(Timestamp::MIN, 0, 0, counter)
    }

    /// A breaker opened by a refusal of message 0 at 0 ms.
    fn opened(has_probe: bool) -> Breaker {
        let mut breaker = Breaker::new(has_probe, 1);
        breaker.sent(id(0));
        assert_eq!(breaker.report(id(0), Report::Refused, 0), Blame::Destination);
        assert_eq!(breaker.admission(), Admission::None);
        breaker
    }

    /// Waits for the next probe, lets it pass or fail, and returns its time.
    fn probe(breaker: &mut Breaker, passes: bool) -> u64 {
        let at = breaker.wake_at_ms().unwrap();
        assert!(!breaker.wake(at - 1), "it is not time yet");
        assert!(breaker.wake(at));
        assert!(!breaker.wake(at), "one probe at a time");
        breaker.probed(passes, at);
        at
    }

    #[test]
    fn a_refusal_opens_it() {
        assert_eq!(opened(true).state(), "open");
    }

    #[test]
    fn five_timeouts_in_a_row_open_it_and_an_answer_between_starts_anew() {
        let mut breaker = Breaker::new(true, 1);
        for n in 0..4 {
            breaker.report(id(n), Report::TimedOut, n);
        }
        breaker.report(id(9), Report::Answered, 5);
        for n in 10..14 {
            breaker.report(id(n), Report::TimedOut, n);
            assert_eq!(breaker.admission(), Admission::Any);
        }
        breaker.report(id(14), Report::TimedOut, 14);
        assert_eq!(breaker.admission(), Admission::None);
    }

    #[test]
    fn probes_come_from_100_ms_to_30_s_apart() {
        let mut breaker = opened(true);
        let mut last = 0;
        let mut gaps = Vec::new();
        for _ in 0..15 {
            let at = probe(&mut breaker, false);
            gaps.push(at - last);
            last = at;
        }
        assert_eq!(gaps[0], 100);
        assert!(gaps.iter().all(|gap| (100..=30_000).contains(gap)), "{gaps:?}");
        assert!(gaps[14] >= 24_000, "{gaps:?}");
    }

    #[test]
    fn half_open_it_lets_one_message_out_at_a_time_and_an_answer_closes_it() {
        let mut breaker = opened(true);
        let at = probe(&mut breaker, true);
        assert_eq!((breaker.admission(), breaker.state()), (Admission::One, "half_open"));
        breaker.sent(id(1));
        assert_eq!(breaker.admission(), Admission::None);
        breaker.report(id(1), Report::Unknown, at);
        assert_eq!(breaker.admission(), Admission::One, "its message was not sent");
        breaker.sent(id(2));
        breaker.report(id(2), Report::Answered, at);
        assert_eq!(breaker.admission(), Admission::Any);
        // Down again: the first wait is short again.
        breaker.report(id(3), Report::Refused, at);
        assert_eq!(breaker.wake_at_ms(), Some(at + 100));
    }

    #[test]
    fn what_was_under_way_when_it_opened_changes_nothing() {
        let mut breaker = opened(true);
        let probe_at = breaker.wake_at_ms();
        for n in 1..64 {
            assert_eq!(breaker.report(id(n), Report::Refused, n), Blame::Destination);
            assert_eq!(breaker.report(id(n), Report::Answered, n), Blame::Destination);
        }
        assert_eq!((breaker.wake_at_ms(), breaker.state()), (probe_at, "open"));
        probe(&mut breaker, true);
        breaker.sent(id(100));
        assert_eq!(breaker.report(id(5), Report::Answered, 1), Blame::Destination);
        assert_eq!(breaker.admission(), Admission::None, "message 100 is still out");
    }

    #[test]
    fn a_message_that_breaks_it_three_times_while_probes_pass_has_failed_itself() {
        let mut breaker = opened(true);
        for breaks in 1..=3 {
            let at = probe(&mut breaker, true);
            breaker.sent(id(7));
            let blame = breaker.report(id(7), Report::Refused, at);
            assert_eq!(blame, if breaks == 3 { Blame::Message } else { Blame::Destination });
        }
        assert_eq!(breaker.admission(), Admission::One, "the next message goes at once");
        breaker.sent(id(8));
        breaker.report(id(8), Report::Answered, 0);
        assert_eq!(breaker.admission(), Admission::Any);
    }

    #[test]
    fn a_message_is_not_blamed_for_a_destination_without_a_probe() {
        let mut breaker = opened(false);
        for _ in 0..10 {
            let at = breaker.wake_at_ms().unwrap();
            assert!(!breaker.wake(at), "there is nothing to probe");
            assert_eq!(breaker.admission(), Admission::One);
            breaker.sent(id(7));
            assert_eq!(breaker.report(id(7), Report::Refused, at), Blame::Destination);
        }
    }

    #[test]
    fn a_message_that_times_out_while_others_are_answered_has_failed_itself() {
        let mut breaker = Breaker::new(false, 1);
        let mut blames = Vec::new();
        for n in 0..4 {
            blames.push(breaker.report(id(7), Report::TimedOut, n));
            breaker.report(id(100 + n), Report::Answered, n);
        }
        assert_eq!(blames, [Blame::Destination, Blame::Destination, Blame::Destination, Blame::Message]);
        assert_eq!(breaker.admission(), Admission::Any);
    }

    #[test]
    fn throttled_it_waits_as_long_as_it_is_told() {
        let mut breaker = Breaker::new(true, 1);
        breaker.report(id(1), Report::Throttled { for_ms: 60_000 }, 5);
        assert_eq!(breaker.wake_at_ms(), Some(60_005));
        // Of several in flight the longest wait counts.
        breaker.report(id(2), Report::Throttled { for_ms: 90_000 }, 6);
        breaker.report(id(3), Report::Throttled { for_ms: 0 }, 7);
        assert_eq!(breaker.wake_at_ms(), Some(90_006));
    }

    #[test]
    fn it_remembers_a_bounded_number_of_messages() {
        let mut breaker = Breaker::new(true, 1);
        for n in 0..5_000 {
            breaker.report(id(n), Report::TimedOut, n);
            breaker.report(id(1_000_000), Report::Answered, n);
        }
        assert_eq!(breaker.suspicions.len(), REMEMBERED);
    }

    fn reports() -> impl Strategy<Value = Report> {
        prop_oneof![
            Just(Report::Answered),
            Just(Report::Refused),
            Just(Report::TimedOut),
            Just(Report::Unknown),
            (0..100_u64).prop_map(|for_ms| Report::Throttled { for_ms }),
        ]
    }

    proptest! {
        /// For any input: while open there is a time of the next try; while half open at most one message is in flight.
        #[test]
        fn it_never_stays_open_for_good(
            has_probe: bool,
            steps in prop::collection::vec((0..6_u64, reports(), any::<bool>(), 0..60_000_u64), 1..200),
        ) {
            let mut breaker = Breaker::new(has_probe, 3);
            let mut now = 0;
            let mut out: Vec<MessageId> = Vec::new();
            for (number, report, flag, passed_ms) in steps {
                now += passed_ms;
                if breaker.wake(now) {
                    breaker.probed(flag, now);
                }
                if breaker.state() == "half_open" && breaker.admission() == Admission::One {
                    breaker.sent(id(number));
                    prop_assert_eq!(breaker.admission(), Admission::None);
                    out.push(id(number));
                } else if breaker.admission() == Admission::Any {
                    breaker.sent(id(number));
                    out.push(id(number));
                }
                if flag && let Some(id) = out.pop() {
                    breaker.report(id, report, now);
                }
                if breaker.state() == "open" {
                    let at = breaker.wake_at_ms();
                    prop_assert!(at.is_some_and(|at| at <= now + LAST_PROBE_MS));
                }
            }
            // All messages in flight return, and the destination answers from now on.
            for id in out {
                breaker.report(id, Report::Unknown, now);
            }
            now += LAST_PROBE_MS;
            if breaker.wake(now) {
                breaker.probed(true, now);
            }
            prop_assert_ne!(breaker.admission(), Admission::None);
        }
    }
}

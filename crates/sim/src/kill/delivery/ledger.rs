//! What was put, and the verdict on what the logs say of it.

use std::collections::BTreeMap;

/// The queues of the messages: the webhook's, the worker's.
pub(super) const QUEUES: [&str; 2] = ["hooked", "worked"];

/// How a message is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By a webhook of the server, to the receiver.
    Webhook,
    /// To a worker over HTTP.
    Worker,
}

impl Way {
    /// The queue of its messages.
    pub(super) const fn queue(self) -> &'static str {
        let [hooked, worked] = QUEUES;
        match self {
            Way::Webhook => hooked,
            Way::Worker => worked,
        }
    }
}

/// A message whose put was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) number: u64,
    pub(super) way: Way,
    /// Its instant, in milliseconds since 1970.
    pub(super) at_ms: i64,
}

/// The ledger; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) dues: Vec<Due>,
    pub(super) violations: Vec<String>,
    /// The number of deliveries.
    pub(super) delivered: u64,
    /// The number of deliveries beyond the first of each message.
    pub(super) again: u64,
}

impl Ledger {
    /// Adds messages that were put.
    pub(super) fn extend(&mut self, dues: Vec<Due>) {
        self.dues.extend(dues);
    }

    /// Judges the log of one way, each of whose lines is a message's body and the time of a delivery. `most` is the
    /// allowed number of deliveries beyond the first of each message.
    pub(super) fn judge(&mut self, way: Way, log: &str, most: u64) {
        let dues: BTreeMap<u64, i64> =
            self.dues.iter().filter(|due| due.way == way).map(|due| (due.number, due.at_ms)).collect();
        let mut times: BTreeMap<u64, u64> = BTreeMap::new();
        for line in log.lines() {
            let words: Vec<i64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            let &[number, due_ms, at_ms] = &*words else {
                self.violations.push(format!("a {way:?} was handed what was not put: '{line}'"));
                continue;
            };
            self.delivered += 1;
            let number = number.unsigned_abs();
            match dues.get(&number) {
                Some(put_ms) if *put_ms == due_ms => *times.entry(number).or_default() += 1,
                _ => self.violations.push(format!("a {way:?} was handed what was not put: '{line}'")),
            }
            if at_ms < due_ms {
                self.violations.push(format!("early by {} ms: '{line}'", due_ms - at_ms));
            }
        }
        for number in dues.keys().filter(|number| !times.contains_key(number)) {
            self.violations.push(format!("message {number} is lost: no {way:?} was handed it"));
        }
        let again: u64 = times.values().map(|times| times - 1).sum();
        self.again += again;
        if again > most {
            let text =
                format!("{again} deliveries again by {way:?}: at most {most} were in flight at a kill");
            self.violations.push(text);
        }
    }

    /// Records what is in the queues at the end, which should be nothing.
    pub(super) fn left(&mut self, left: Vec<String>) {
        self.violations.extend(left.into_iter().map(|left| format!("left at the end: {left}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        let due = |number, way| Due { number, way, at_ms: 1_000 };
        let dues = vec![due(0, Way::Webhook), due(1, Way::Worker), due(2, Way::Webhook)];
        Ledger { dues, ..Ledger::default() }
    }

    /// The violations of this log of webhooks.
    fn violations(log: &str, most: u64) -> Vec<String> {
        let mut ledger = ledger();
        ledger.judge(Way::Webhook, log, most);
        ledger.violations
    }

    #[test]
    fn each_message_once_and_some_again_is_right() {
        let mut ledger = ledger();
        ledger.judge(Way::Webhook, "0 1000 1000\n2 1000 1007\n0 1000 5000\n", 1);
        ledger.judge(Way::Worker, "1 1000 1001\n", 0);
        assert_eq!((ledger.violations, ledger.delivered, ledger.again), (Vec::new(), 4, 1));
    }

    #[test]
    fn what_is_lost_early_unknown_or_too_often_is_reported() {
        for (log, most, said) in [
            ("0 1000 1000\n", 9, "message 2 is lost"),
            ("0 1000 999\n2 1000 1000\n", 9, "early by 1 ms"),
            ("0 1000 1000\n2 1000 1000\n1 1000 1000\n", 9, "was not put"),
            ("0 1000 1000\n2 1001 1001\n2 1000 1000\n", 9, "was not put"),
            ("0 1000 1000\n2 1000 1000\nx\n", 9, "was not put"),
            ("0 1000 1000\n2 1000 1000\n2 1000 1000\n", 0, "at most 0"),
        ] {
            let violations = violations(log, most);
            assert_eq!(violations.len(), 1, "{log}: {violations:?}");
            assert!(violations[0].contains(said), "{violations:?}");
        }
        let mut ledger = ledger();
        ledger.left(vec!["hooked: 1 dead".into()]);
        assert_eq!(ledger.violations, ["left at the end: hooked: 1 dead"]);
    }
}

//! A breaker for each host, where messages name their own: a host that is down delays its own messages alone.

use std::collections::BTreeMap;

use dwell_model::MessageId;

use super::target::Origin;
use crate::breaker::{Admission, Blame, Breaker, Report};

/// The maximum number of hosts. Past it, the least recently used one is forgotten.
const REMEMBERED: usize = 1_024;
/// The delay before a message is tried again whose host gives no other time, in milliseconds.
const AGAIN_AFTER_MS: u64 = 1_000;

/// The breakers. It reads no clock: `now_ms` is monotonic.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    breakers: BTreeMap<Origin, HostState>,
    seed: u64,
}

#[derive(Debug)]
struct HostState {
    breaker: Breaker,
    used_ms: u64,
}

impl Hosts {
    pub(super) fn new(seed: u64) -> Hosts {
        Hosts { breakers: BTreeMap::new(), seed }
    }

    /// Whether a message may be sent to this host; otherwise the delay in milliseconds before asking again. One that is
    /// sent is [reported](Hosts::report).
    pub(super) fn admit(&mut self, origin: &Origin, id: MessageId, now_ms: u64) -> Result<(), u64> {
        let known = self.known(origin, now_ms);
        known.breaker.wake(now_ms);
        match known.breaker.admission() {
            Admission::None => Err(again_after_ms(&known.breaker, now_ms)),
            Admission::Any | Admission::One => {
                known.breaker.sent(id);
                Ok(())
            }
        }
    }

    /// Reports the result of a message that was sent. Returns whose failure it was, and the delay in milliseconds
    /// before asking again if it was the host's.
    pub(super) fn report(
        &mut self,
        origin: &Origin,
        id: MessageId,
        report: Report,
        now_ms: u64,
    ) -> (Blame, u64) {
        let known = self.known(origin, now_ms);
        let blame = known.breaker.report(id, report, now_ms);
        (blame, again_after_ms(&known.breaker, now_ms))
    }

    fn known(&mut self, origin: &Origin, now_ms: u64) -> &mut HostState {
        if !self.breakers.contains_key(origin) && self.breakers.len() >= REMEMBERED {
            let oldest = self.breakers.iter().min_by_key(|(_, known)| known.used_ms);
            if let Some(oldest) = oldest.map(|(origin, _)| origin.clone()) {
                self.breakers.remove(&oldest);
            }
        }
        let seed = self.seed;
        let new = || HostState { breaker: Breaker::new(false, seed), used_ms: now_ms };
        let known = self.breakers.entry(origin.clone()).or_insert_with(new);
        known.used_ms = now_ms;
        known
    }
}

fn again_after_ms(breaker: &Breaker, now_ms: u64) -> u64 {
    breaker.wake_at_ms().map_or(AGAIN_AFTER_MS, |at_ms| at_ms.saturating_sub(now_ms).max(1))
}

#[cfg(test)]
mod tests {
    use dwell_model::Timestamp;

    use super::*;

    fn id(counter: u64) -> MessageId {
        MessageId::new(Timestamp::MIN, 0, 0, counter)
    }

    fn origin(host: &str) -> Origin {
        Origin { is_tls: true, host: host.into(), port: 443 }
    }

    #[test]
    fn a_host_that_is_down_holds_up_its_own_messages_alone() {
        let (mut hosts, down, up) = (Hosts::new(1), origin("down"), origin("up"));
        assert_eq!(hosts.admit(&down, id(1), 0), Ok(()));
        let (blame, wait_ms) = hosts.report(&down, id(1), Report::Refused, 10);
        assert_eq!((blame, wait_ms), (Blame::Destination, 100));
        assert_eq!(hosts.admit(&down, id(2), 60), Err(50));
        assert_eq!(hosts.admit(&up, id(3), 60), Ok(()));
        assert_eq!(hosts.admit(&up, id(4), 60), Ok(()));

        assert_eq!(hosts.admit(&down, id(2), 110), Ok(()), "one tries it again");
        assert_eq!(hosts.admit(&down, id(1), 110), Err(AGAIN_AFTER_MS), "and no other meanwhile");
        hosts.report(&down, id(2), Report::Answered, 120);
        assert_eq!(hosts.admit(&down, id(1), 120), Ok(()));
        assert_eq!(hosts.admit(&down, id(5), 120), Ok(()));
    }

    #[test]
    fn one_that_was_dropped_lets_another_out() {
        let (mut hosts, host) = (Hosts::new(1), origin("a"));
        assert_eq!(hosts.admit(&host, id(1), 0), Ok(()));
        hosts.report(&host, id(1), Report::Throttled { for_ms: 5_000 }, 0);
        assert_eq!(hosts.admit(&host, id(1), 4_999), Err(1));
        assert_eq!(hosts.admit(&host, id(1), 5_000), Ok(()));
        hosts.report(&host, id(1), Report::Unknown, 5_001);
        assert_eq!(hosts.admit(&host, id(2), 5_001), Ok(()));
    }

    #[test]
    fn hosts_without_end_are_not_remembered() {
        let mut hosts = Hosts::new(1);
        for number in 0..3 * REMEMBERED as u64 {
            assert_eq!(hosts.admit(&origin(&number.to_string()), id(number), number), Ok(()));
        }
        assert_eq!(hosts.breakers.len(), REMEMBERED);
    }
}

//! The leases that a worker holds: when each is renewed, and its deadline.
//!
//! Ground rule: a deadline counts from *before* the call that granted it, on the monotonic clock. The store starts its
//! count later, so a lease that is valid here is valid there. A call that is not answered in time has granted nothing.

use std::collections::BTreeMap;

use dwell_model::Receipt;

/// Identifies a held lease, for the lifetime of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LeaseId(u64);

/// All held leases, each with a `T` of its holder. It reads no clock: `now_ms` is monotonic.
#[derive(Debug)]
pub(crate) struct Leases<T> {
    held: BTreeMap<LeaseId, TrackedLease<T>>,
    next: u64,
    /// When the keeper checks again; the end of time, if nothing is due.
    awaited_ms: u64,
}

#[derive(Debug)]
struct TrackedLease<T> {
    receipt: Receipt,
    lease_ms: u64,
    /// The time before the call that granted it last.
    granted_ms: u64,
    renewal: Renewal,
    holder: T,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewal {
    /// After a third of the lease.
    InTime,
    /// The store could not renew it, and is called again at this time.
    AgainAt(u64),
    /// A call is in progress that began at this time. After a sixth of the lease another one is made.
    Asked(u64),
}

impl<T> TrackedLease<T> {
    fn deadline_ms(&self) -> u64 {
        self.granted_ms.saturating_add(self.lease_ms)
    }

    fn renew_at_ms(&self) -> u64 {
        match self.renewal {
            Renewal::InTime => self.granted_ms.saturating_add(self.lease_ms / 3),
            Renewal::AgainAt(at_ms) => at_ms,
            // A call may never return, as on a connection whose peer has silently vanished. The next one uses another
            // connection.
            Renewal::Asked(asked_ms) => asked_ms.saturating_add((self.lease_ms / 6).max(1)),
        }
    }

    fn wake_at_ms(&self) -> u64 {
        self.renew_at_ms().min(self.deadline_ms())
    }

    /// Whether a renewal that is sent for other leases includes this one.
    fn goes_along(&self, now_ms: u64) -> bool {
        match self.renewal {
            Renewal::InTime => self.granted_ms.saturating_add(self.lease_ms / 6) <= now_ms,
            Renewal::AgainAt(at_ms) => at_ms <= now_ms,
            Renewal::Asked(_) => false,
        }
    }
}

impl<T> Leases<T> {
    pub(crate) fn new() -> Leases<T> {
        Leases { held: BTreeMap::new(), next: 0, awaited_ms: u64::MAX }
    }

    /// Records a lease that was granted by a call that began at `asked_ms`. Returns whether the keeper has to check
    /// earlier than [`sleep`](Leases::sleep) said.
    pub(crate) fn granted(
        &mut self,
        receipt: Receipt,
        lease_ms: u64,
        asked_ms: u64,
        holder: T,
    ) -> (LeaseId, bool) {
        let id = LeaseId(self.next);
        self.next += 1;
        let held = TrackedLease { receipt, lease_ms, granted_ms: asked_ms, renewal: Renewal::InTime, holder };
        let is_earlier = held.wake_at_ms() < self.awaited_ms;
        self.held.insert(id, held);
        (id, is_earlier)
    }

    /// Its deadline, if it is still held.
    #[cfg(test)]
    pub(crate) fn deadline_ms(&self, id: LeaseId) -> Option<u64> {
        self.held.get(&id).map(TrackedLease::deadline_ms)
    }

    /// The holder is finished: the lease is no longer renewed. Returns its receipt and its deadline, if it is not over,
    /// in which case the holder's outcome counts.
    pub(crate) fn end(&mut self, id: LeaseId, now_ms: u64) -> Option<(Receipt, u64)> {
        let held = self.held.remove(&id)?;
        (now_ms < held.deadline_ms()).then(|| (held.receipt.clone(), held.deadline_ms()))
    }

    /// The receipts to renew now, in one call: all of them, if one is due.
    pub(crate) fn renew(&mut self, now_ms: u64) -> Vec<(LeaseId, Receipt)> {
        let is_due = |held: &TrackedLease<T>| held.renew_at_ms() <= now_ms;
        if !self.held.values().any(is_due) {
            return Vec::new();
        }
        let due = self.held.iter_mut().filter(|(_, held)| is_due(held) || held.goes_along(now_ms));
        due.map(|(id, held)| {
            held.renewal = Renewal::Asked(now_ms);
            (*id, held.receipt.clone())
        })
        .collect()
    }

    /// Records that the store has renewed this lease, by a call that began at `asked_ms`. Calls may be answered in any
    /// order.
    pub(crate) fn renewed(&mut self, id: LeaseId, asked_ms: u64) {
        if let Some(held) = self.held.get_mut(&id)
            && asked_ms >= held.granted_ms
        {
            held.granted_ms = asked_ms;
            held.renewal = Renewal::InTime;
        }
    }

    /// Records that the store could not renew this lease, in a call that began at `asked_ms`. It is called again until
    /// the lease is over. A later call in progress decides for itself.
    pub(crate) fn not_renewed(&mut self, id: LeaseId, asked_ms: u64, now_ms: u64) {
        if let Some(held) = self.held.get_mut(&id)
            && held.renewal == Renewal::Asked(asked_ms)
        {
            held.renewal = Renewal::AgainAt(now_ms.saturating_add((held.lease_ms / 12).max(1)));
        }
    }

    /// Records that the store says that this lease is lost.
    pub(crate) fn lost(&mut self, id: LeaseId) -> Option<T> {
        self.held.remove(&id).map(|held| held.holder)
    }

    /// The holders of leases that are over: their outcomes no longer count.
    pub(crate) fn lapsed(&mut self, now_ms: u64) -> Vec<T> {
        let over: Vec<LeaseId> =
            self.held.iter().filter(|(_, held)| held.deadline_ms() <= now_ms).map(|(id, _)| *id).collect();
        over.into_iter().filter_map(|id| self.lost(id)).collect()
    }

    /// When there is something to do next, and the keeper has to check. [`granted`](Leases::granted) reports when it
    /// has to check sooner.
    pub(crate) fn sleep(&mut self) -> Option<u64> {
        let wake_at_ms = self.held.values().map(TrackedLease::wake_at_ms).min();
        self.awaited_ms = wake_at_ms.unwrap_or(u64::MAX);
        wake_at_ms
    }
}

#[cfg(test)]
mod tests {
    use dwell_model::{LeaseToken, MessageId, Timestamp};
    use proptest::prelude::*;

    use super::*;

    fn receipt(counter: u64) -> Receipt {
        Receipt {
            queue: "orders".parse().unwrap(),
            id: MessageId::new(Timestamp::MIN, 0, 0, counter),
            token: LeaseToken(u128::from(counter)),
        }
    }

    fn held(leases: &mut Leases<u64>, counter: u64, asked_ms: u64) -> LeaseId {
        leases.granted(receipt(counter), 30_000, asked_ms, counter).0
    }

    #[test]
    fn a_lease_is_renewed_at_a_third() {
        let mut leases = Leases::new();
        let id = held(&mut leases, 1, 500);
        assert_eq!(leases.sleep(), Some(10_500));
        assert_eq!(leases.renew(10_499), []);
        assert_eq!(leases.renew(10_500), [(id, receipt(1))]);
        assert_eq!(leases.renew(10_501), [], "it is asked already");
        leases.renewed(id, 10_500);
        // From before the call, whenever the answer arrived.
        assert_eq!(leases.deadline_ms(id), Some(40_500));
        assert_eq!(leases.sleep(), Some(20_500));
    }

    #[test]
    fn a_keeper_is_woken_only_for_what_is_earlier() {
        let mut leases = Leases::new();
        assert_eq!(leases.sleep(), None);
        assert!(leases.granted(receipt(1), 30_000, 0, 1).1, "the first");
        assert_eq!(leases.sleep(), Some(10_000));
        assert!(!leases.granted(receipt(2), 30_000, 1, 2).1);
        assert!(leases.granted(receipt(3), 3_000, 1, 3).1, "a shorter lease");
    }

    #[test]
    fn one_call_takes_along_what_is_due_soon() {
        let mut leases = Leases::new();
        let first = held(&mut leases, 1, 0);
        let second = held(&mut leases, 2, 5_000);
        let third = held(&mut leases, 3, 5_001);
        assert_eq!(leases.renew(10_000), [(first, receipt(1)), (second, receipt(2))]);
        leases.renewed(first, 10_000);
        leases.renewed(second, 10_000);
        assert_eq!(leases.renew(14_999), []);
        assert!(leases.renew(15_001).contains(&(third, receipt(3))));
    }

    #[test]
    fn a_lease_is_over_at_its_deadline_though_a_renewal_is_under_way() {
        let mut leases = Leases::new();
        let id = held(&mut leases, 1, 0);
        for asked_ms in [10_000, 15_000, 20_000, 25_000] {
            assert_eq!(leases.renew(asked_ms).len(), 1);
        }
        assert_eq!(leases.sleep(), Some(30_000));
        assert!(leases.lapsed(29_999).is_empty());
        assert_eq!(leases.lapsed(30_000), [1]);
        leases.renewed(id, 25_000);
        assert_eq!(
            (leases.deadline_ms(id), leases.sleep()),
            (None, None),
            "an answer too late revives nothing"
        );
    }

    #[test]
    fn an_outcome_counts_until_the_deadline() {
        let mut leases = Leases::new();
        let (early, late) = (held(&mut leases, 1, 0), held(&mut leases, 2, 0));
        assert_eq!(leases.end(early, 29_999), Some((receipt(1), 30_000)));
        assert_eq!(leases.end(late, 30_000), None);
        assert_eq!(leases.end(early, 0), None, "it ended before");
    }

    #[test]
    fn a_store_that_cannot_renew_is_asked_again_until_the_deadline() {
        let mut leases = Leases::new();
        let id = held(&mut leases, 1, 0);
        leases.renew(10_000);
        leases.not_renewed(id, 10_000, 11_000);
        assert_eq!(leases.sleep(), Some(13_500));
        assert_eq!(leases.renew(13_499), []);
        assert_eq!(leases.renew(13_500).len(), 1);
        leases.renewed(id, 13_500);
        assert_eq!(leases.deadline_ms(id), Some(43_500));
    }

    #[test]
    fn a_call_that_does_not_return_is_made_again() {
        let mut leases = Leases::new();
        let id = held(&mut leases, 1, 0);
        assert_eq!(leases.renew(10_000).len(), 1);
        assert_eq!(leases.sleep(), Some(15_000));
        assert_eq!(leases.renew(14_999), []);
        assert_eq!(leases.renew(15_000).len(), 1);
        // The first one fails late: the second one is still in progress.
        leases.not_renewed(id, 10_000, 16_000);
        assert_eq!(leases.sleep(), Some(20_000));
        leases.renewed(id, 15_000);
        assert_eq!(leases.deadline_ms(id), Some(45_000));
        // An earlier call grants less.
        leases.renewed(id, 10_000);
        assert_eq!(leases.deadline_ms(id), Some(45_000));
    }

    #[test]
    fn a_lost_lease_gives_its_holder_back_once() {
        let mut leases = Leases::new();
        let id = held(&mut leases, 1, 0);
        assert_eq!(leases.lost(id), Some(1));
        assert_eq!(leases.lost(id), None);
    }

    proptest! {
        /// A keeper that acts on time, over a store that answers within a sixth of a lease, loses no lease; and
        /// whenever it takes a lease for valid, so does the store.
        #[test]
        fn no_lease_is_lost_to_a_store_that_answers(
            takes in prop::collection::vec((0..20_000_u64, 0..5_000_u64), 1..30),
            answers_ms in prop::collection::vec(0..5_000_u64, 1..20),
        ) {
            let mut leases = Leases::new();
            // The store's deadlines: it grants when the call arrives, half way.
            let mut stored: BTreeMap<LeaseId, u64> = BTreeMap::new();
            let mut now = 0;
            let mut answers = answers_ms.iter().cycle();
            let mut takes = takes.into_iter();
            for _ in 0..300 {
                if let Some((gap, took)) = takes.next() {
                    let asked = now;
                    now += gap.min(took);
                    let (id, _) = leases.granted(receipt(now), 30_000, asked, now);
                    stored.insert(id, asked + gap.min(took) / 2 + 30_000);
                }
                let due = leases.renew(now);
                if !due.is_empty() {
                    let took = *answers.next().unwrap();
                    for (id, _) in &due {
                        prop_assert!(stored[id] > now + took / 2, "the store has given it up");
                        stored.insert(*id, now + took / 2 + 30_000);
                    }
                    let asked = now;
                    now += took;
                    due.iter().for_each(|(id, _)| leases.renewed(*id, asked));
                }
                prop_assert_eq!(leases.lapsed(now), Vec::<u64>::new());
                for (id, deadline) in &stored {
                    prop_assert!(leases.deadline_ms(*id).unwrap() <= *deadline, "ours must not be behind the store's");
                }
                now = leases.sleep().unwrap().max(now);
            }
        }
    }
}

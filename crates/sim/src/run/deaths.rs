//! The store's counts of deaths and discards, compared with its answers since it was opened: a count must not be smaller,
//! and must not contain anything without a cause; and the counts of deaths and discards explain, with the answers, how the
//! counts of messages changed between two moments at which the store had no work left.

use std::collections::{BTreeMap, HashSet};

use dwell_model::{DeathReason, MessageId};
use dwell_store::{
    Cancelled, DeathCounts, DiscardCounts, Error, PutOutcome, QueueDeaths, Result, Settled, StateCounts,
};

use super::answers::CommandFate;
use super::client::{CallAnswer, CallSubject};
use super::world::World;
use crate::oracle::{Action, DEAD_MAX, DEAD_TTL, ON_EXPIRY, StoreAnswer, Sweep, TakenById, ViolationKind};
use crate::workload::{QUEUES, queue_name};

/// The minimum counts; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct Deaths {
    /// The minimum counts by queue.
    least: BTreeMap<u32, (DeathCounts, DiscardCounts)>,
    /// The number of settlements that may have buried further messages.
    unsure: u64,
    /// The changes of the number of messages, by queue.
    ledgers: BTreeMap<u32, Ledger>,
    /// The messages that puts have made: a repeated put is answered as the first one.
    made: HashSet<MessageId>,
}

/// What answers reported of the messages of a queue since its counts were last compared.
#[derive(Debug, Default)]
struct Ledger {
    /// The counts at that time.
    before: Option<Total>,
    /// Messages that were put.
    put: i64,
    /// Messages that were acked, cancelled or purged.
    taken_out: i64,
    /// Dead messages that were revived.
    revived: i64,
    /// Whether there may have been others of any of these.
    is_unsure: bool,
}

/// The counts of a queue by which its messages have to add up.
#[derive(Clone, Copy, Debug)]
struct Total {
    /// All messages that it has, and those of them that are dead.
    messages: i64,
    dead: i64,
    /// Deaths so far; discards of dead messages; and of messages that expired and never were dead.
    deaths: i64,
    discarded: i64,
    dropped: i64,
}

impl Total {
    fn of(counts: StateCounts, counted: &QueueDeaths) -> Total {
        let DeathCounts { attempts, lapse, expiry, buried } = counted.deaths;
        let DiscardCounts { dead_ttl, dead_max, on_expiry, asked } = counted.discarded;
        Total {
            messages: (counts.scheduled + counts.ready + counts.leased + counts.dead) as i64,
            dead: counts.dead as i64,
            deaths: (attempts + lapse + expiry + buried) as i64,
            discarded: (dead_ttl + dead_max + asked) as i64,
            dropped: on_expiry as i64,
        }
    }
}

impl Ledger {
    /// Closes the ledger with these counts, and begins the next; `None` if they are not known. Returns false if they do not
    /// follow from those before.
    fn balance(&mut self, now: Option<Total>) -> bool {
        let Ledger { before, put, taken_out, revived, is_unsure } =
            std::mem::replace(self, Ledger { before: now, ..Ledger::default() });
        let (Some(before), Some(now), false) = (before, now, is_unsure) else { return true };
        let discarded = now.discarded - before.discarded;
        let dead = before.dead + now.deaths - before.deaths - discarded - revived;
        let messages = before.messages + put - taken_out - discarded - (now.dropped - before.dropped);
        (now.dead, now.messages) == (dead, messages)
    }
}

/// Whether each count of the first is at least that of the second.
fn is_no_less(counted: &QueueDeaths, (deaths, discarded): &(DeathCounts, DiscardCounts)) -> bool {
    let QueueDeaths { deaths: counted_deaths, discarded: counted_discarded, .. } = counted;
    let of_deaths = |counts: &DeathCounts| {
        let DeathCounts { attempts, lapse, expiry, buried } = *counts;
        [attempts, lapse, expiry, buried]
    };
    let of_discarded = |counts: &DiscardCounts| {
        let DiscardCounts { dead_ttl, dead_max, on_expiry, asked } = *counts;
        [dead_ttl, dead_max, on_expiry, asked]
    };
    let pairs = of_deaths(counted_deaths).into_iter().zip(of_deaths(deaths));
    let others = of_discarded(counted_discarded).into_iter().zip(of_discarded(discarded));
    pairs.chain(others).all(|(counted, least)| counted >= least)
}

impl World {
    /// Records the deaths and discards of an answer, and the other changes of the number of messages.
    pub(super) fn note_deaths(&mut self, about: &CallSubject, said: &CallAnswer, fates: &[CommandFate]) {
        self.note_changes(about, said, fates);
        match (about, said) {
            (CallSubject::Settle(batch), CallAnswer::Settled(answers)) => {
                for ((held, _), answer) in batch.iter().zip(answers) {
                    self.note_death(held.queue(), answer, false);
                }
            }
            (CallSubject::EndLease(leases), CallAnswer::Ended(answers)) => {
                for ((address, _), answer) in leases.iter().zip(answers) {
                    self.note_death(address.queue, answer, true);
                }
            }
            (CallSubject::Discard(queue), CallAnswer::Raised(Ok(swept))) => {
                self.deaths.least.entry(*queue).or_default().1.asked += swept.done;
            }
            (CallSubject::Sweep(queue, Sweep::DiscardAll), CallAnswer::Swept(Ok(done))) => {
                self.deaths.least.entry(*queue).or_default().1.asked += done;
            }
            _ => {}
        }
    }

    /// Enters an answer in the ledger of its queue. What dies or is discarded meanwhile is in the store's own counts.
    fn note_changes(&mut self, about: &CallSubject, said: &CallAnswer, fates: &[CommandFate]) {
        let is_unknown = |fate: &CommandFate| !matches!(fate, CommandFate::Heard(_));
        let Deaths { ledgers, made, .. } = &mut self.deaths;
        let queue = match about {
            CallSubject::Put(again) | CallSubject::Mismatch(again) => again.put.address.queue,
            CallSubject::TakeById(queue)
            | CallSubject::Cancel(queue)
            | CallSubject::Revive(queue)
            | CallSubject::Discard(queue)
            | CallSubject::Sweep(queue, _) => *queue,
            CallSubject::Settle(batch) => {
                let CallAnswer::Settled(answers) = said else { return };
                for (((held, action), answer), fate) in batch.iter().zip(answers).zip(fates) {
                    let ledger = ledgers.entry(held.queue()).or_default();
                    ledger.is_unsure |= is_unknown(fate);
                    // A message that expired meanwhile may be gone after another action: that is counted as a drop.
                    let is_acked = *action == Action::Ack && matches!(answer, Ok(Settled::Gone));
                    ledger.taken_out += i64::from(is_acked);
                }
                return;
            }
            CallSubject::EndLease(_) | CallSubject::Other => return,
        };
        let ledger = ledgers.entry(queue).or_default();
        ledger.is_unsure |= fates.iter().any(is_unknown);
        match (about, said) {
            (CallSubject::Put(again), CallAnswer::Put(Ok(answer))) if made.insert(answer.id) => {
                match answer.outcome {
                    // The first of the two answers was lost, and it is not known when the message was made.
                    PutOutcome::Created if again.is_repetition => ledger.is_unsure = true,
                    PutOutcome::Created => ledger.put += 1,
                    // The other one is gone, or stays with its holder if it is leased.
                    PutOutcome::Replaced(_) => ledger.is_unsure = true,
                    PutOutcome::Kept => {}
                }
            }
            // A message that was taken by its id may have been dead.
            (CallSubject::TakeById(_), _) => {
                ledger.is_unsure |= matches!(
                    fates,
                    [CommandFate::Heard(StoreAnswer::TookById(TakenById::Delivered(_) | TakenById::Unread))]
                );
            }
            (CallSubject::Cancel(_), CallAnswer::Cancelled(Ok(Cancelled::Cancelled(_)))) => {
                ledger.taken_out += 1
            }
            (CallSubject::Revive(_), CallAnswer::Raised(Ok(swept))) => ledger.revived += swept.done as i64,
            (CallSubject::Sweep(_, Sweep::ReviveAll(_)), CallAnswer::Swept(Ok(count))) => {
                ledger.revived += *count as i64
            }
            (CallSubject::Sweep(_, Sweep::Purge), CallAnswer::Swept(Ok(count))) => {
                ledger.taken_out += *count as i64
            }
            // Its answer does not say how many of its messages were dead.
            (CallSubject::Sweep(_, Sweep::DeleteQueue), _) => ledger.is_unsure = true,
            _ => {}
        }
    }

    fn note_death(&mut self, queue: u32, answer: &Result<Settled>, by_lapse: bool) {
        let deaths = &mut self.deaths.least.entry(queue).or_default().0;
        match answer {
            Ok(Settled::Dead(DeathReason::AttemptsSpent)) if by_lapse => deaths.lapse += 1,
            Ok(Settled::Dead(DeathReason::AttemptsSpent)) => deaths.attempts += 1,
            Ok(Settled::Dead(DeathReason::Expired)) => deaths.expiry += 1,
            Ok(Settled::Dead(DeathReason::Buried)) => deaths.buried += 1,
            Ok(_) | Err(Error::LeaseLost) => {}
            Err(_) => self.deaths.unsure += 1,
        }
    }

    /// Compares the counts while no command is under way, in a store that may have no pending work (`rests`).
    pub(super) fn look_at_deaths(&mut self, rests: bool) {
        let Some(before) = self.counted_deaths() else { return };
        let counts: Vec<Option<StateCounts>> = (0..QUEUES)
            .map(|queue| match self.stats(queue)? {
                Err(Error::UnknownQueue { .. }) => Some(StateCounts::default()),
                stats => stats.ok().map(|stats| stats.counts),
            })
            .collect();
        let Some(counted) = self.counted_deaths() else { return };
        // What a flush finds expired meanwhile may make others be discarded: then the counts are of different moments.
        let is_still = rests && counted == before;
        self.trace.add(format_args!("  deaths {counted:?}"));
        for (queue, counts) in (0..QUEUES).zip(counts) {
            let name = queue_name(queue);
            let of_queue = counted.iter().find(|counted| counted.queue.as_ref() == Some(&name));
            let of_queue = of_queue.cloned().unwrap_or_default();
            let least = self.deaths.least.entry(queue).or_default();
            let policy = self.oracle.policy(queue);
            let DiscardCounts { dead_ttl, dead_max, on_expiry, .. } = of_queue.discarded;
            let causes = [(dead_ttl, DEAD_TTL), (dead_max, DEAD_MAX), (on_expiry, ON_EXPIRY)];
            let is_causeless =
                causes.iter().any(|(count, setting)| *count > 0 && !policy.was_ever_set(setting));
            let buried_most = least.0.buried + self.deaths.unsure;
            if is_causeless || of_queue.deaths.buried > buried_most || !is_no_less(&of_queue, least) {
                let text = format!("queue {queue} counts {of_queue:?}, and {least:?} was answered");
                return self.oracle.accuse(ViolationKind::Contradiction, text);
            }
            let ledger = self.deaths.ledgers.entry(queue).or_default();
            let text = format!("queue {queue} has {counts:?} and counts {of_queue:?} after {ledger:?}");
            let total = counts.filter(|_| is_still).map(|counts| Total::of(counts, &of_queue));
            if !ledger.balance(total) {
                return self.oracle.accuse(ViolationKind::Contradiction, text);
            }
            // A count never decreases while the store is open.
            *least = (DeathCounts { buried: least.0.buried, ..of_queue.deaths }, of_queue.discarded);
        }
    }

    /// The store's counts; `None` if it is not open or has failed to answer, which is a violation.
    fn counted_deaths(&mut self) -> Option<Vec<QueueDeaths>> {
        let store = self.running.as_ref().map(|running| running.store.clone())?;
        match self.ask(async move { store.deaths().await }) {
            Some(Ok(counted)) => Some(counted),
            other => {
                self.oracle.accuse(ViolationKind::Contradiction, format!("deaths were answered {other:?}"));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three messages, none of them dead, before any was counted.
    const BEFORE: Total = Total { messages: 3, dead: 0, deaths: 0, discarded: 0, dropped: 0 };

    /// Whether these counts follow from those before, if one message was put, one acked and one revived since.
    fn add_up(now: Total) -> bool {
        let mut ledger =
            Ledger { before: Some(BEFORE), put: 1, taken_out: 1, revived: 1, ..Ledger::default() };
        ledger.balance(Some(now))
    }

    #[test]
    fn a_count_that_misses_one_does_not_add_up() {
        // Of three one was dropped when it expired, and two died, of which one was revived and one discarded.
        let right = Total { messages: 1, dead: 0, deaths: 2, discarded: 1, dropped: 1 };
        assert!(add_up(right));
        assert!(!add_up(Total { deaths: 1, ..right }), "a death");
        assert!(!add_up(Total { discarded: 0, ..right }), "a discard");
        assert!(!add_up(Total { dropped: 0, ..right }), "a drop");
        assert!(!add_up(Total { messages: 2, ..right }), "a message");
    }

    #[test]
    fn what_is_not_known_is_not_held_against_the_store() {
        let mut ledger = Ledger { before: Some(BEFORE), is_unsure: true, ..Ledger::default() };
        assert!(ledger.balance(Some(Total { messages: 9, ..BEFORE })), "an answer was lost");
        assert!(!ledger.balance(Some(BEFORE)), "the next one begins where it ended");
        assert!(ledger.balance(None) && ledger.balance(Some(BEFORE)), "it begins anew after a gap");
    }
}

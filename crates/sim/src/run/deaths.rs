//! The store's counts of deaths and discards, compared with its answers since it was opened: a count must not be smaller,
//! and must not contain anything without a cause.

use std::collections::BTreeMap;

use dwell_model::DeathReason;
use dwell_store::{DeathCounts, DiscardCounts, Error, QueueDeaths, Result, Settled};

use super::client::{CallAnswer, CallSubject};
use super::world::World;
use crate::oracle::{DEAD_MAX, DEAD_TTL, ON_EXPIRY, ViolationKind};
use crate::workload::{QUEUES, queue_name};

/// The minimum counts; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct Deaths {
    /// The minimum counts by queue.
    least: BTreeMap<u32, (DeathCounts, DiscardCounts)>,
    /// The number of settlements that may have buried further messages.
    unsure: u64,
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
    /// Records the deaths and discards of an answer.
    pub(super) fn note_deaths(&mut self, about: &CallSubject, said: &CallAnswer) {
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

    /// Compares the counts while no command is under way.
    pub(super) fn look_at_deaths(&mut self) {
        let Some(store) = self.running.as_ref().map(|running| running.store.clone()) else { return };
        let counted = match self.ask(async move { store.deaths().await }) {
            Some(Ok(counted)) => counted,
            other => {
                let text = format!("deaths were answered {other:?}");
                return self.oracle.accuse(ViolationKind::Contradiction, text);
            }
        };
        self.trace.add(format_args!("  deaths {counted:?}"));
        for queue in 0..QUEUES {
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
            // A count never decreases while the store is open.
            *least = (DeathCounts { buried: least.0.buried, ..of_queue.deaths }, of_queue.discarded);
        }
    }
}

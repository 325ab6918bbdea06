//! Resolves a drawn step to a queue, a message, a receipt and an instant.

use bytes::Bytes;
use dwell_model::{
    AttemptLimit, Backoff, Headers, Holder, Limits, MessageId, Number, Pause, QueueName, Receipt, Setting,
    SettingChange, SettingName, Timestamp,
};

use super::drive::Driver;
use super::step::{
    ActionPlan, ChangePlan, Pick, PutPlan, QUEUES, SelectionPlan, TakePlan, TargetPlan, WhenPlan,
};
use crate::conformance::stage::{idempotency_key, key};
use crate::{Action, LeaseRef, LeaseTerms, Put, Selection, Settle, Take, Target, When};

impl Driver {
    pub(super) fn name(&self, q: u8) -> QueueName {
        self.names[usize::from(q % QUEUES)].clone()
    }

    pub(super) fn put_of(&self, plan: &PutPlan) -> Put {
        let name = self.name(plan.q);
        let expires = plan.expires_ms.map(|ms| self.after(ms));
        let idempotency_key = plan.idempotency_key.map(|n| idempotency_key(&format!("t{n}")));
        let headers = [("content-type", "text/plain")];
        Put {
            body: Bytes::from(vec![plan.body_len; usize::from(plan.body_len)]),
            when: self.when_of(&plan.when),
            key: plan.key.map(|n| key(&format!("k{n}"))),
            on_conflict: plan.on_conflict,
            headers: Headers::new(headers.into_iter().filter(|_| plan.header)).unwrap(),
            priority: plan.priority,
            lease_ms: plan.lease_ms,
            max_attempts: plan.max_attempts.map(attempt_limit),
            expires,
            idempotency_key: idempotency_key
                .filter(|idempotency_key| !self.reference.is_doubtful(&name, idempotency_key)),
            queue: name,
        }
    }

    pub(super) fn take_of(&self, plan: &TakePlan) -> Take {
        Take {
            queues: plan.queues.iter().map(|q| self.name(*q)).collect(),
            max: plan.max,
            max_bytes: plan.max_bytes,
            wait_ms: 0,
            lease_ms: plan.lease_ms,
            session: plan.session && self.harness.has_sessions(),
            holder: plan.holder.map(holder),
        }
    }

    pub(super) fn terms_of(lease_ms: Option<u64>, session: bool, by: Option<u8>) -> LeaseTerms {
        LeaseTerms { lease_ms, session, holder: by.map(holder) }
    }

    /// The present lease of a message, or one of an earlier take.
    pub(super) fn lease_ref(&self, q: u8, (pick, off): (Pick, u32)) -> LeaseRef {
        let id = self.message(q, pick);
        let kept = self.reference.kept.iter().find(|kept| kept.message.id == id);
        let takes = kept.map_or(0, |kept| kept.message.standing.counts.takes);
        LeaseRef { id, takes: takes.saturating_sub(off) }
    }

    /// Mostly a current receipt; else a stale one, or one that was never issued.
    pub(super) fn settle_of(&self, (pick, plan): &(Pick, ActionPlan)) -> Settle {
        let in_force = self.reference.receipts();
        let place = usize::from(*pick) % (in_force.len() + 2);
        let receipt = in_force.get(place).cloned().or_else(|| {
            let stale = latest(&self.receipts, *pick / 2)?;
            let mut stale = stale.clone();
            stale.token.0 ^= u128::from(*pick % 2);
            Some(stale)
        });
        let nobodys = || Receipt {
            queue: self.name(*pick),
            id: MessageId::new(Timestamp::MIN, 0, 0, 0),
            token: dwell_model::LeaseToken(u128::from(*pick)),
        };
        let text =
            |n: &u8| if *n == 3 { "x".repeat(Limits::MAX_ERROR_TEXT_LEN + 1) } else { format!("e{n}") };
        let action = match plan {
            ActionPlan::Ack => Action::Ack,
            ActionPlan::Retry { after_ms, error, priority } => Action::Retry {
                after_ms: *after_ms,
                error: error.as_ref().map(|n| text(n).into()),
                priority: *priority,
            },
            ActionPlan::Release { after_ms, priority } => {
                Action::Release { after_ms: *after_ms, priority: *priority }
            }
            ActionPlan::Bury { reason, priority } => {
                Action::Bury { reason: reason.as_ref().map(|n| text(n).into()), priority: *priority }
            }
            ActionPlan::Extend { lease_ms } => Action::Extend { lease_ms: *lease_ms },
        };
        Settle { receipt: receipt.unwrap_or_else(nobodys), action }
    }

    /// Mostly a message of the queue; else one that was removed or is in another queue.
    pub(super) fn message(&self, q: u8, pick: Pick) -> MessageId {
        let name = self.name(q);
        let here = self.reference.kept.iter().map(|kept| &kept.message).filter(|m| m.queue == name);
        let here: Vec<_> = here.map(|message| message.id).collect();
        let place = usize::from(pick) % (here.len() + 1);
        let elsewhere = || latest(&self.known, pick).map(|(id, _)| *id);
        let nobody = MessageId::new(Timestamp::MIN, 0, 0, 0);
        here.get(place).copied().or_else(elsewhere).unwrap_or(nobody)
    }

    pub(super) fn number(&self, pick: Pick) -> Number {
        latest(&self.known, pick).map_or(Number::MAX, |(_, number)| *number)
    }

    pub(super) fn target(&self, q: u8, plan: &TargetPlan) -> Target {
        match plan {
            TargetPlan::Id(pick) => Target::Id(self.message(q, *pick)),
            TargetPlan::Key(n) => Target::Key(key(&format!("k{n}"))),
        }
    }

    pub(super) fn targets(&self, q: u8, plans: &[TargetPlan]) -> Vec<Target> {
        plans.iter().map(|plan| self.target(q, plan)).collect()
    }

    pub(super) fn selection(&self, q: u8, plan: &SelectionPlan) -> Selection {
        match plan {
            SelectionPlan::Ids(picks) => {
                Selection::Ids(picks.iter().map(|pick| self.message(q, *pick)).collect())
            }
            SelectionPlan::Oldest(count) => Selection::Oldest(*count),
            SelectionPlan::All => Selection::All,
        }
    }

    pub(super) fn when_of(&self, plan: &WhenPlan) -> When {
        match plan {
            WhenPlan::Now => When::Now,
            WhenPlan::At(ms) => When::At(self.after(*ms)),
            WhenPlan::AfterMs(ms) => When::AfterMs(*ms),
            WhenPlan::Level(level) => When::Level(*level),
        }
    }

    pub(super) fn change_of(&self, plan: &ChangePlan) -> SettingChange {
        SettingChange::Set(match plan {
            ChangePlan::LeaseMs(ms) => Setting::LeaseMs(*ms),
            ChangePlan::MaxAttempts(n) => Setting::MaxAttempts(attempt_limit(*n)),
            ChangePlan::Backoff { base_ms, factor_percent } => Setting::Backoff(Backoff {
                base_ms: *base_ms,
                factor_percent: *factor_percent,
                cap_ms: 2_000,
                jitter_percent: 0,
            }),
            ChangePlan::MaxPending(limit) => Setting::MaxPending(*limit),
            ChangePlan::Pause(None) => Setting::Pause(Pause::Indefinite),
            ChangePlan::Pause(Some(ms)) => Setting::Pause(Pause::Until(self.after(*ms))),
            ChangePlan::Resume => Setting::Pause(Pause::Running),
            ChangePlan::Levels(levels) => Setting::Levels(levels.clone()),
            ChangePlan::Partitions(partitions) => Setting::Partitions(*partitions),
            ChangePlan::IdempotencyMs(ms) => Setting::IdempotencyMs(*ms),
            ChangePlan::DeadTtlMs(ms) => Setting::DeadTtlMs(*ms),
            ChangePlan::DeadMax(most) => Setting::DeadMax(*most),
            ChangePlan::OnExpiry(what) => Setting::OnExpiry(*what),
            ChangePlan::MaxLeased(most) => Setting::MaxLeased(*most),
            ChangePlan::LapseBackoff(from) => Setting::LapseBackoff(*from),
            ChangePlan::Reset(place) => return SettingChange::Reset(SettingName::ALL[*place]),
        })
    }

    fn after(&self, ms: i64) -> Timestamp {
        Timestamp::from_ms(self.reference.wall().as_ms() + ms).unwrap()
    }
}

fn holder(n: u8) -> Holder {
    Holder::new(&format!("worker {n}")).unwrap()
}

fn attempt_limit(n: u8) -> AttemptLimit {
    u32::from(n).try_into().map_or(AttemptLimit::Unlimited, AttemptLimit::At)
}

/// One of the latest few.
fn latest<T>(all: &[T], pick: Pick) -> Option<&T> {
    all.iter().rev().nth(usize::from(pick) % all.len().clamp(1, 8))
}

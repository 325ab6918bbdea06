//! Moving the instant of messages that are scheduled or ready.

use dwell_model::{Command, Now, QueueName, Refusal};

use super::{Core, Durability, Log, StoredBody};
use crate::{Rescheduled, Result, Target, When};

impl<B: StoredBody> Core<B> {
    /// See [`Store::reschedule`](crate::Store::reschedule).
    pub fn reschedule(
        &mut self,
        queue: &QueueName,
        moves: Vec<(Target, When)>,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Vec<Result<Rescheduled>> {
        self.begin(now, log);
        self.each(moves, |core, (target, when)| {
            let queue = core.touched(queue, now, log);
            let settings = queue.map_or(&core.config.limits.defaults, |queue| core.settings(queue));
            let due = core.instant(when, settings, now)?;
            let Some(queue) = queue else { return Ok(Rescheduled::NotFound) };
            let Some(slot) = core.find_target(queue, &target, now, log)? else {
                return Ok(Rescheduled::NotFound);
            };
            let id = core.entries.get(slot).id;
            match core.change(slot, &Command::Reschedule(due), now, Durability::Synced, log) {
                Ok(_) => {
                    core.note_ready(slot, now.wall);
                    Ok(Rescheduled::Moved(id, due))
                }
                Err(Refusal::Leased) => Ok(Rescheduled::Leased(id)),
                Err(Refusal::Dead) => Ok(Rescheduled::Dead(id)),
                Err(refusal) => Err(core.refused_instant(slot, due, refusal)),
            }
        })
    }
}

//! Puts that may be retried under their idempotency key. The oracle assumes that an idempotency key is stored for as
//! long as its put may be retried: so no put is retried late, and while a retry is under way the clocks do not leap
//! past that time.

use dwell_time::Clock as _;

use super::client::CallSubject;
use super::time;
use super::world::World;
use crate::workload::NewPut;

/// The largest spread of wall-clock readings since a put was first sent with
/// which it may still be retried, in ms: half of the shortest `idempotency_ttl`.
const REPEAT_MS: i64 = 300_000;
/// The largest spread of readings while a retry is under way, in ms: still less than the shortest `idempotency_ttl`.
const UNDER_WAY_MS: i64 = 500_000;

/// A put that may be retried under its idempotency key.
#[derive(Clone, Debug)]
pub(super) struct Again {
    pub(super) put: NewPut,
    /// The earliest and the latest reading of the wall clock since it was first sent.
    earliest: i64,
    latest: i64,
    pub(super) is_repetition: bool,
    /// Whether something else is sent under its idempotency key, which must be refused.
    pub(super) is_mismatch: bool,
}

impl Again {
    /// A put that is first sent at `wall`.
    pub(super) fn new(put: NewPut, wall: i64) -> Again {
        Again { put, earliest: wall, latest: wall, is_repetition: false, is_mismatch: false }
    }

    /// The put as a retry; `None` if it is too late for one.
    pub(super) fn repeated(self) -> Option<Again> {
        (self.spread() < REPEAT_MS).then_some(Again { is_repetition: true, ..self })
    }

    /// Records a reading of the wall clock: the store may have answered then, or removed the idempotency key.
    fn shown(&mut self, wall: i64) {
        self.earliest = self.earliest.min(wall);
        self.latest = self.latest.max(wall);
    }

    fn spread(&self) -> i64 {
        self.latest - self.earliest
    }
}

impl World {
    /// Moves the clocks, but not so far that a retry under way would be too late.
    pub(super) fn pass_time(&mut self) {
        let under_way = self.flights.iter_mut().filter_map(|flight| match &mut flight.about {
            CallSubject::Put(again) if again.put.spec.idempotency_key => Some(&mut **again),
            CallSubject::Mismatch(again) => Some(&mut **again),
            _ => None,
        });
        let mut watched: Vec<&mut Again> = under_way.collect();
        let repetitions = watched.iter().filter(|again| again.is_repetition);
        let room = repetitions.map(|again| UNDER_WAY_MS - again.spread()).min().unwrap_or(i64::MAX);
        time::pass(&self.clock, &mut self.rng, room);
        let wall = self.clock.now().wall.as_ms();
        watched.extend(&mut self.again);
        watched.into_iter().for_each(|again| again.shown(wall));
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use dwell_model::{Limits, Timestamp};

    use super::super::client::Flight;
    use super::*;
    use crate::workload;

    fn world() -> World {
        World::new(1, false, None, None)
    }

    fn under_idempotency_key(world: &mut World) -> Again {
        let now = world.clock.now().wall;
        let mut put = workload::put(&mut world.rng, 1, now);
        put.spec.idempotency_key = true;
        Again::new(put, now.as_ms())
    }

    fn fly(world: &mut World, again: Again) {
        let (about, future) = (CallSubject::Put(Box::new(again)), Box::pin(pending()));
        world.flights.push(Flight { ops: Vec::new(), is_take: false, is_sweep: false, about, future });
    }

    fn land(world: &mut World) -> Again {
        match world.flights.pop().map(|flight| flight.about) {
            Some(CallSubject::Put(again)) => *again,
            _ => panic!("a put is under way"),
        }
    }

    #[test]
    fn no_idempotency_key_is_forgotten_while_its_put_is_under_way_again() {
        let mut world = world();
        let again = under_idempotency_key(&mut world).repeated().expect("it was sent just now");
        fly(&mut world, again);
        let (mut earliest, mut latest) = (i64::MAX, i64::MIN);
        // A full disk may delay its answer at each tick.
        for _ in 0..10_000 {
            world.pass_time();
            let wall = world.clock.now().wall.as_ms();
            (earliest, latest) = (earliest.min(wall), latest.max(wall));
        }
        let remembered = Limits::default().defaults.idempotency_ms;
        assert!(latest > earliest && latest - earliest < remembered as i64, "{earliest} to {latest}");
    }

    #[test]
    fn a_put_is_not_repeated_once_its_idempotency_key_may_have_been_forgotten() {
        // Either the put was under way when the clock leapt there and back, or it waited for its retry; in both directions.
        for leap in [3_600_000, -3_600_000] {
            for is_under_way in [true, false] {
                let mut world = world();
                let again = under_idempotency_key(&mut world);
                if is_under_way {
                    fly(&mut world, again);
                } else {
                    world.again = Some(again);
                }
                let start = world.clock.now().wall.as_ms();
                for wall in [start + leap, start] {
                    world.clock.step_wall(Timestamp::from_ms(wall).expect("it lies in this century"));
                    world.pass_time();
                }
                let again =
                    if is_under_way { land(&mut world) } else { world.again.take().expect("it waits") };
                assert!(again.repeated().is_none(), "{leap} {is_under_way}");
            }
        }
    }
}

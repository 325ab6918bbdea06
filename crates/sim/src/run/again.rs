//! Puts that may be sent again under their token. The oracle takes a token to be remembered for as long as its put may be
//! repeated: so none is repeated late, and while a repetition is under way the clocks do not leap past that time.

use dwell_time::Clock as _;

use super::client::About;
use super::time;
use super::world::World;
use crate::workload::NewPut;

/// A put may be sent again while the wall clock has shown no two instants, since it was first sent, that lie so far apart.
/// Half of the shortest time that its token is remembered.
const REPEAT_MS: i64 = 300_000;
/// While it is under way again, no two that lie further apart than this: still less than its token is remembered.
const UNDER_WAY_MS: i64 = 500_000;

/// A put that may be sent again under its token.
#[derive(Clone, Debug)]
pub(super) struct Again {
    pub(super) put: NewPut,
    /// The earliest and the latest that the wall clock has shown since it was first sent.
    earliest: i64,
    latest: i64,
    is_repetition: bool,
    /// Whether something else is sent under its token, which stands for it.
    pub(super) is_mismatch: bool,
}

impl Again {
    /// A put that is sent for the first time, at `wall`.
    pub(super) fn new(put: NewPut, wall: i64) -> Again {
        Again { put, earliest: wall, latest: wall, is_repetition: false, is_mismatch: false }
    }

    /// It as a repetition; nothing if it is too late for one.
    pub(super) fn repeated(self) -> Option<Again> {
        (self.spread() < REPEAT_MS).then_some(Again { is_repetition: true, ..self })
    }

    /// The wall clock stood there: the store may have answered it then, or forgotten its token.
    fn shown(&mut self, wall: i64) {
        self.earliest = self.earliest.min(wall);
        self.latest = self.latest.max(wall);
    }

    fn spread(&self) -> i64 {
        self.latest - self.earliest
    }
}

impl World {
    /// Moves the clocks, or not if a repetition is under way and they would go too far for it.
    pub(super) fn pass_time(&mut self) {
        let under_way = self.flights.iter_mut().filter_map(|flight| match &mut flight.about {
            About::Put(again) if again.put.spec.token => Some(&mut **again),
            About::Mismatch(again) => Some(&mut **again),
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

    fn under_token(world: &mut World) -> Again {
        let now = world.clock.now().wall;
        let mut put = workload::put(&mut world.rng, 1, now);
        put.spec.token = true;
        Again::new(put, now.as_ms())
    }

    fn fly(world: &mut World, again: Again) {
        let (about, future) = (About::Put(Box::new(again)), Box::pin(pending()));
        world.flights.push(Flight { ops: Vec::new(), is_take: false, is_sweep: false, about, future });
    }

    fn land(world: &mut World) -> Again {
        match world.flights.pop().map(|flight| flight.about) {
            Some(About::Put(again)) => *again,
            _ => panic!("a put is under way"),
        }
    }

    #[test]
    fn no_token_is_forgotten_while_its_put_is_under_way_again() {
        let mut world = world();
        let again = under_token(&mut world).repeated().expect("it was sent just now");
        fly(&mut world, again);
        let (mut earliest, mut latest) = (i64::MAX, i64::MIN);
        // Each tick a disk that is full may keep it from being answered.
        for _ in 0..10_000 {
            world.pass_time();
            let wall = world.clock.now().wall.as_ms();
            (earliest, latest) = (earliest.min(wall), latest.max(wall));
        }
        let remembered = Limits::default().defaults.token_ms;
        assert!(latest > earliest && latest - earliest < remembered as i64, "{earliest} to {latest}");
    }

    #[test]
    fn a_put_is_not_repeated_once_its_token_may_have_been_forgotten() {
        // Whether it was under way when the clock leapt there and back, or waited to be repeated, and which way first.
        for leap in [3_600_000, -3_600_000] {
            for is_under_way in [true, false] {
                let mut world = world();
                let again = under_token(&mut world);
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

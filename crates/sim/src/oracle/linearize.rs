//! Explaining what was heard: is there an order of the commands, true to when each was under way, in which
//! every answer is right?
//!
//! The search is Wing's and Gong's ("Testing and verifying concurrent objects", 1993) over sets of states: a
//! command may come next if none of the others ended before it began. It runs over the few commands of one
//! group that overlapped, so it stays small.

use std::collections::BTreeSet;

use super::policy::Policy;
use super::window::{At, Rules, Seq, Window};

/// What a command does to the thing that it was given to.
pub(crate) trait Effect {
    /// The thing.
    type State: Clone + Ord;
    /// All states that it may have left, if it met `state` and what was heard is true; none if it cannot have.
    fn after(&self, state: &Self::State, at: At<'_>) -> Vec<Self::State>;

    /// Whether it comes in the order given among the deeds of its command.
    fn keeps_order(&self) -> bool {
        true
    }
}

/// A command, and when it may have taken effect.
#[derive(Clone, Debug)]
pub(crate) struct Deed<E> {
    /// At the earliest.
    pub(crate) begin: Seq,
    /// At the latest.
    pub(crate) end: Seq,
    /// The clocks meanwhile.
    pub(crate) window: Window,
    /// What it was, and what was heard of it.
    pub(crate) effect: E,
}

/// Why a search has found no explanation.
#[derive(Debug)]
pub(crate) enum Unexplained<S> {
    /// There is none.
    DeadEnd(DeadEnd<S>),
    /// There are more than [`MOST_STATES`] ways to look at: nobody knows.
    TooMany,
}

/// No order explains what was heard.
#[derive(Debug)]
pub(crate) struct DeadEnd<S> {
    /// A state that was reached with the most commands explained.
    pub(crate) state: S,
    /// The commands that could have come next and cannot, by their place.
    pub(crate) stuck: Vec<usize>,
}

/// The most commands that may overlap.
pub(crate) const MOST: usize = 128;

/// The most states that a search keeps at a time: they double with each command that may or may not have happened.
const MOST_STATES: usize = 100_000;

/// The states that `states` may have become by `deeds`.
///
/// # Errors
/// A dead end if there are none, [`Unexplained::TooMany`] if that cannot be found out.
///
/// # Panics
/// If there are more than [`MOST`] deeds: a workload has to leave a group alone before that.
pub(crate) fn explain<E: Effect>(
    states: &BTreeSet<E::State>,
    deeds: &[Deed<E>],
    rules: &Rules,
    policy: &Policy,
) -> Result<BTreeSet<E::State>, Unexplained<E::State>> {
    assert!(deeds.len() <= MOST, "{} commands overlap on one group", deeds.len());
    let mut frontier: BTreeSet<(u128, E::State)> = states.iter().map(|state| (0, state.clone())).collect();
    for _ in 0..deeds.len() {
        let mut next = BTreeSet::new();
        for (done, state) in &frontier {
            for place in candidates(deeds, *done) {
                let Deed { begin, end, window, effect } = &deeds[place];
                let at = At { begin: *begin, end: *end, window: *window, rules, policy };
                next.extend(effect.after(state, at).into_iter().map(|after| (done | (1 << place), after)));
            }
            if next.len() > MOST_STATES {
                return Err(Unexplained::TooMany);
            }
        }
        if next.is_empty() {
            let (done, state) = frontier.into_iter().next().expect("a frontier is never empty");
            let end = DeadEnd { state, stuck: candidates(deeds, done).collect() };
            return Err(Unexplained::DeadEnd(end));
        }
        frontier = next;
    }
    Ok(frontier.into_iter().map(|(_, state)| state).collect())
}

/// Those that may come next: nothing else that is left ended before they began. What one command did or saw
/// (deeds with one begin) comes in the order given: to try any other would find nothing more, unless it says so.
fn candidates<E: Effect>(deeds: &[Deed<E>], done: u128) -> impl Iterator<Item = usize> {
    let left = move |place: &usize| done & (1 << *place) == 0;
    let first_end = (0..deeds.len()).filter(left).map(|place| deeds[place].end).min().unwrap_or(Seq::MAX);
    let is_next = move |place: &usize| {
        let begin = deeds[*place].begin;
        let is_behind = |earlier: usize| left(&earlier) && deeds[earlier].begin == begin;
        begin <= first_end && !(deeds[*place].effect.keeps_order() && (0..*place).any(is_behind))
    };
    (0..deeds.len()).filter(left).filter(is_next)
}

#[cfg(test)]
mod tests {
    use super::super::window::Span;
    use super::*;

    /// A register of one number: writes, and reads that say what they saw.
    enum Access {
        Write(u8),
        LostWrite(u8),
        Read(u8),
    }

    impl Effect for Access {
        type State = u8;

        fn after(&self, state: &u8, _: At<'_>) -> Vec<u8> {
            match *self {
                Access::Write(value) => vec![value],
                Access::LostWrite(value) => vec![*state, value],
                Access::Read(value) if value == *state => vec![*state],
                Access::Read(_) => vec![],
            }
        }
    }

    fn timed(begin: Seq, end: Seq, effect: Access) -> Deed<Access> {
        let window = Window { wall: Span::exact(0), mono: Span::exact(0) };
        Deed { begin, end, window, effect }
    }

    fn after(deeds: &[Deed<Access>]) -> Result<Vec<u8>, Vec<usize>> {
        match explain(&BTreeSet::from([0]), deeds, &Rules::default(), &Policy::default()) {
            Ok(states) => Ok(states.into_iter().collect()),
            Err(Unexplained::DeadEnd(end)) => Err(end.stuck),
            Err(Unexplained::TooMany) => panic!("it is a short story"),
        }
    }

    #[test]
    fn what_overlaps_may_have_come_in_either_order() {
        let overlap = [timed(1, 4, Access::Write(1)), timed(2, 3, Access::Write(2))];
        assert_eq!(after(&overlap).unwrap(), [1, 2]);
        let apart = [timed(1, 2, Access::Write(1)), timed(3, 4, Access::Write(2))];
        assert_eq!(after(&apart).unwrap(), [2]);
    }

    /// Keeps which commands have happened.
    struct Perhaps(u32);

    impl Effect for Perhaps {
        type State = u32;

        fn after(&self, state: &u32, _: At<'_>) -> Vec<u32> {
            vec![*state, state | 1 << self.0]
        }
    }

    #[test]
    fn a_search_ends_where_the_ways_are_too_many() {
        let window = Window { wall: Span::exact(0), mono: Span::exact(0) };
        let story = |count: u32| -> Vec<Deed<Perhaps>> {
            (0..count).map(|n| Deed { begin: n.into(), end: 100, window, effect: Perhaps(n) }).collect()
        };
        let explained =
            |count| explain(&BTreeSet::from([0]), &story(count), &Rules::default(), &Policy::default());
        assert_eq!(explained(8).unwrap().len(), 256);
        assert!(matches!(explained(30), Err(Unexplained::TooMany)));
    }

    #[test]
    fn a_read_of_the_past_has_no_explanation() {
        let stale =
            [timed(1, 2, Access::Write(1)), timed(3, 4, Access::Write(2)), timed(5, 6, Access::Read(1))];
        assert_eq!(after(&stale).unwrap_err(), [2]);
    }

    #[test]
    fn a_lost_write_may_have_happened_until_a_read_tells() {
        let lost = || timed(1, 2, Access::LostWrite(1));
        assert_eq!(after(&[lost()]).unwrap(), [0, 1]);
        assert_eq!(after(&[lost(), timed(3, 4, Access::Read(0))]).unwrap(), [0]);
        assert_eq!(after(&[lost(), timed(3, 4, Access::Read(1))]).unwrap(), [1]);
        assert!(after(&[lost(), timed(3, 4, Access::Read(1)), timed(5, 6, Access::Read(0))]).is_err());
    }
}

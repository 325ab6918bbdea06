//! The pool of messages that commands may name: those seen in recent answers.

use dwell_model::MessageId;
use dwell_testkit::Random;

use crate::oracle::Address;

/// The most messages of each kind in the pool.
const MOST: usize = 2_000;

/// The pool; see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Pool {
    known: Vec<(Address, MessageId)>,
    dead: Vec<(Address, MessageId)>,
    last_no: u64,
}

impl Pool {
    /// The number for a new put.
    pub(crate) fn next_no(&mut self) -> u64 {
        self.last_no += 1;
        self.last_no
    }

    /// Adds a message that was seen.
    pub(crate) fn add(&mut self, rng: &mut Random, address: Address, id: MessageId) {
        remember(&mut self.known, rng, (address, id));
    }

    /// Adds a message that is dead.
    pub(crate) fn add_dead(&mut self, rng: &mut Random, address: Address, id: MessageId) {
        remember(&mut self.dead, rng, (address, id));
    }

    /// Any message of the pool; it may be gone.
    pub(crate) fn any(&self, rng: &mut Random) -> Option<(Address, MessageId)> {
        (!self.known.is_empty()).then(|| *rng.pick(&self.known))
    }

    /// A message that was dead when last seen. Sometimes it is returned twice.
    pub(crate) fn dead(&mut self, rng: &mut Random) -> Option<(Address, MessageId)> {
        if self.dead.is_empty() {
            return None;
        }
        let at = rng.below(self.dead.len() as u64) as usize;
        Some(if rng.percent(80) { self.dead.swap_remove(at) } else { self.dead[at] })
    }
}

/// Adds an entry, or replaces a random one.
fn remember(list: &mut Vec<(Address, MessageId)>, rng: &mut Random, entry: (Address, MessageId)) {
    if list.len() < MOST {
        list.push(entry);
    } else {
        let at = rng.below(MOST as u64) as usize;
        list[at] = entry;
    }
}

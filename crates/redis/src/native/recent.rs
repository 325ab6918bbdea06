//! What was met with lately: a set that forgets what nobody has asked for in a long while, and so has a bound.

use std::collections::HashSet;
use std::hash::Hash;

/// A set in two halves. Whatever is asked for is in the newer one from then on; when that is full it becomes the older one,
/// and what was in this before is forgotten.
#[derive(Debug)]
pub(super) struct Recent<T> {
    newer: HashSet<T>,
    older: HashSet<T>,
    half: usize,
}

impl<T: Eq + Hash + Clone> Recent<T> {
    /// Remembers at least the last `half` that were asked for, and at most twice as many.
    pub(super) fn new(half: usize) -> Recent<T> {
        Recent { newer: HashSet::new(), older: HashSet::new(), half }
    }

    /// Whether it was met with; it is kept for longer then.
    pub(super) fn knows(&mut self, item: &T) -> bool {
        if self.newer.contains(item) {
            return true;
        }
        match self.older.take(item) {
            Some(item) => {
                self.meet(item);
                true
            }
            None => false,
        }
    }

    pub(super) fn meet(&mut self, item: T) {
        if self.newer.len() >= self.half {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(item);
    }

    pub(super) fn len(&self) -> usize {
        self.newer.len() + self.older.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_again_and_again_stays_and_what_is_not_goes() {
        let mut recent = Recent::new(100);
        recent.meet(0);
        for item in 1..10_000 {
            assert!(!recent.knows(&item));
            recent.meet(item);
            if item % 50 == 0 {
                assert!(recent.knows(&0), "after {item}");
            }
            assert!(recent.len() <= 200);
        }
        assert!((9_901..10_000).all(|item| recent.knows(&item)), "the last hundred");
        assert!(!recent.knows(&1));
    }
}

//! A bounded map of what was used lately: entries that were not looked up for long are dropped.

use std::collections::HashMap;
use std::hash::Hash;

/// A map in two halves. Each entry that is looked up is in the newer one from then on; when that is full it becomes
/// the older one, and the previous older one is dropped.
#[derive(Debug)]
pub(super) struct Recent<K, V = ()> {
    newer: HashMap<K, V>,
    older: HashMap<K, V>,
    half: usize,
}

impl<K: Eq + Hash, V> Recent<K, V> {
    /// Keeps at least the last `half` entries that were looked up, and at most twice as many.
    pub(super) fn new(half: usize) -> Recent<K, V> {
        Recent { newer: HashMap::new(), older: HashMap::new(), half }
    }

    /// The value of a key, if it is there; looking it up keeps it for longer.
    pub(super) fn get(&mut self, key: &K) -> Option<&V> {
        if let Some((key, value)) = self.older.remove_entry(key) {
            self.meet(key, value);
        }
        self.newer.get(key)
    }

    pub(super) fn meet(&mut self, key: K, value: V) {
        if self.newer.len() >= self.half && !self.newer.contains_key(&key) {
            self.older = std::mem::take(&mut self.newer);
        }
        self.older.remove(&key);
        self.newer.insert(key, value);
    }

    pub(super) fn forget(&mut self, key: &K) {
        self.newer.remove(key);
        self.older.remove(key);
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
        recent.meet(0, 'a');
        for item in 1..10_000 {
            assert_eq!(recent.get(&item), None);
            recent.meet(item, 'b');
            if item % 50 == 0 {
                assert_eq!(recent.get(&0), Some(&'a'), "after {item}");
            }
            assert!(recent.len() <= 200);
        }
        assert!((9_901..10_000).all(|item| recent.get(&item).is_some()), "the last hundred");
        assert_eq!(recent.get(&1), None);
    }

    #[test]
    fn what_was_said_last_holds() {
        let mut recent = Recent::new(2);
        for item in 0..3 {
            recent.meet(item, 'a');
        }
        // An entry of the older half.
        recent.meet(0, 'b');
        assert_eq!((recent.len(), recent.get(&0)), (3, Some(&'b')));
        recent.forget(&0);
        recent.forget(&1);
        assert_eq!((recent.len(), recent.get(&0)), (1, None));
        assert_eq!(recent.get(&2), Some(&'a'));
    }
}

//! Debouncing by value: reduces all pending elements with the same bytes to one, and replaces that one atomically.
//!
//! Removing an element costs a search of the pending list. So surplus elements are removed first, a few per script,
//! each of which checks that one element stays. Then one script removes the last one and adds the new one. Readers see
//! at least one element at all times.

use std::collections::HashSet;
use std::time::Duration;

use super::super::codec::Codec;
use super::super::error::Error;
use super::super::script::{self, decimal};
use super::walk::QueuePosition;
use super::{Debounced, DelayedQueue, PAGE, When, arguments, instant};
use crate::element;

/// The approximate maximum number of entries that all searches of one script may pass; the first search is not limited.
const SEARCHED: i64 = 10_000;
/// The number of elements that one script removes.
const TAKEN_OUT: usize = 50;
/// The number of elements that the last step removes: one, and any that were offered just before.
const LAST: usize = 8;
/// The pause between two scripts, which leaves Redis to other clients.
const REST: Duration = Duration::from_millis(1);

/// An element that was found, and its approximate index.
struct DebounceFound {
    packed: Vec<u8>,
    index: i64,
}

impl DebounceFound {
    /// The distance of a search for it from the nearer end of a list of this length, and that end, as `LREM` names it.
    fn search(&self, length: i64) -> (i64, i64) {
        let behind = (length - self.index).max(0);
        if behind < self.index { (behind, -1) } else { (self.index, 1) }
    }
}

impl<C: Codec> DelayedQueue<C> {
    pub(super) async fn replace_equal(&self, payload: &[u8], when: When) -> Result<Debounced, Error> {
        let [kind, ms] = arguments(when);
        let packed = element::pack(self.layout, payload);
        let (mut place, mut found, mut seen) = (QueuePosition::default(), Vec::new(), HashSet::new());
        let mut before = 0;
        loop {
            self.find_equal(&mut place, payload, &mut found, &mut seen).await?;
            before += self.leave_one(&mut found, place.index).await?;
            let mut rest = vec![kind.clone(), ms.clone(), packed.clone(), payload.to_vec()];
            rest.extend([decimal(place.index), place.after.clone(), decimal(4 * PAGE)]);
            let end = found.last().map_or(1, |left| left.search(place.index).1);
            rest.extend([script::MOST_BYTES, LAST].map(decimal));
            rest.push(decimal(end));
            rest.extend(found.last().map(|left| left.packed.clone()));
            let (taken_out, due): (i64, String) =
                self.call(&script::DEBOUNCE, &self.offer_keys(), &rest).await?;
            // Negative: others have offered too many elements since the end of the walk, or the walk has lost its
            // position.
            if let Ok(taken_out) = usize::try_from(taken_out) {
                return Ok(Debounced { taken_out: before + taken_out, due: instant(&due)? });
            }
        }
    }

    /// Walks on to the end of the list, and adds the elements it finds.
    ///
    /// If the position is lost, the walk starts over; elements found before are kept.
    async fn find_equal(
        &self,
        place: &mut QueuePosition,
        payload: &[u8],
        found: &mut Vec<DebounceFound>,
        seen: &mut HashSet<Vec<u8>>,
    ) -> Result<(), Error> {
        loop {
            let (is_end, page) = self.find(place, &[payload.to_vec()]).await?;
            for packed in page {
                if seen.insert(packed.clone()) {
                    found.push(DebounceFound { packed, index: place.index });
                }
            }
            if is_end {
                return Ok(());
            }
        }
    }

    /// Removes all elements but the last one that is still scheduled. Returns the number removed.
    async fn leave_one(&self, found: &mut Vec<DebounceFound>, length: i64) -> Result<usize, Error> {
        let keys = [self.keys.pending(), self.keys.timeouts()];
        let Some(mut stays) = found.pop() else { return Ok(0) };
        let (mut taken_out, mut gone) = (0, Vec::new());
        while !found.is_empty() {
            let mut left = SEARCHED;
            let affords = |one: &&DebounceFound| {
                let is_first = left == SEARCHED;
                left -= one.search(length).0.max(1);
                is_first || left >= 0
            };
            let count = found.iter().rev().take(TAKEN_OUT).take_while(affords).count();
            let few = &found[found.len() - count..];
            let mut rest = vec![stays.packed.clone()];
            rest.extend(few.iter().flat_map(|one| [decimal(one.search(length).1), one.packed.clone()]));
            let some: i64 = self.call(&script::SURPLUS, &keys, &rest).await?;
            if let Ok(some) = usize::try_from(some) {
                taken_out += some;
                found.truncate(found.len() - count);
                tokio::time::sleep(REST).await;
            } else if let Some(next) = found.pop() {
                // It became due, or another client removed it: another element stays.
                gone.push(std::mem::replace(&mut stays, next));
            }
        }
        found.push(stays);
        for one in gone {
            // An element that was only in the list is still there.
            taken_out += self.take_out(vec![one.packed]).await?;
        }
        Ok(taken_out)
    }
}

//! Walks the pending list page by page, where Java uses one long script.

use super::super::codec::Codec;
use super::super::error::Error;
use super::super::script::{self, decimal};
use super::{DelayedQueue, PAGE};

/// The purpose of a walk over the pending list.
#[derive(Clone, Copy)]
pub(super) enum QueueWalk {
    Find,
    TakeFirst,
    TakeAll,
}

/// The position of a walk.
#[derive(Clone, Debug, Default)]
pub(super) struct QueuePosition {
    /// The next index.
    pub(super) index: i64,
    /// The element before that index; empty at the head of the list.
    pub(super) after: Vec<u8>,
}

impl QueuePosition {
    /// Whether it is the head of the list, where a walk starts, and starts over when its position is lost.
    pub(super) fn is_first(&self) -> bool {
        self.index == 0
    }
}

impl<C: Codec> DelayedQueue<C> {
    /// Reads a page and advances.
    ///
    /// Returns whether it was the last page, and the elements found. A lost position becomes the head of the list.
    /// Without payloads, all elements are returned.
    pub(super) async fn find(
        &self,
        place: &mut QueuePosition,
        payloads: &[Vec<u8>],
    ) -> Result<(bool, Vec<Vec<u8>>), Error> {
        let after = std::mem::take(&mut place.after);
        let mut arguments = vec![decimal(place.index), after, decimal(PAGE), decimal(script::MOST_BYTES)];
        arguments.extend_from_slice(payloads);
        let (index, after, end, found): (i64, Vec<u8>, i64, Vec<Vec<u8>>) =
            self.call(&script::FIND, &[self.keys.pending()], &arguments).await?;
        *place = if index < 0 { QueuePosition::default() } else { QueuePosition { index, after } };
        Ok((end == 1, found))
    }

    /// Walks the pending list page by page.
    ///
    /// Others may remove elements meanwhile: the script finds its position by the last element of the previous page,
    /// and if that is gone too, the walk starts over.
    pub(super) async fn walk(&self, payloads: &[Vec<u8>], walk: QueueWalk) -> Result<usize, Error> {
        if payloads.is_empty() {
            return Ok(0);
        }
        let (mut place, mut count) = (QueuePosition::default(), 0);
        loop {
            let (is_end, found) = self.find(&mut place, payloads).await?;
            for packed in found {
                count += match walk {
                    QueueWalk::Find => 1,
                    // Another client may have removed it first. Then the next element with this value is the first.
                    QueueWalk::TakeFirst | QueueWalk::TakeAll => self.take_out(vec![packed]).await?,
                };
                if count > 0 && matches!(walk, QueueWalk::Find | QueueWalk::TakeFirst) {
                    return Ok(count);
                }
            }
            if is_end {
                return Ok(count);
            }
        }
    }

    pub(super) async fn take_out(&self, packed: Vec<Vec<u8>>) -> Result<usize, Error> {
        let keys = [self.keys.pending(), self.keys.timeouts()];
        let taken: Vec<usize> = self.call(&script::TAKE_OUT, &keys, &packed).await?;
        Ok(taken.into_iter().sum())
    }
}

//! Walking the pending list page by page, for what Java does by one long script.

use super::super::codec::Codec;
use super::super::error::Error;
use super::super::script::{self, decimal};
use super::{DelayedQueue, PAGE};

/// What a walk over the pending list is for.
#[derive(Clone, Copy)]
pub(super) enum Walk {
    Find,
    TakeFirst,
    TakeAll,
}

impl<C: Codec> DelayedQueue<C> {
    /// Walks the pending list page by page. Others may take elements out meanwhile: the script finds its place
    /// again by the last element of the page before, and where that is gone too the walk begins anew.
    pub(super) async fn walk(&self, payloads: &[Vec<u8>], walk: Walk) -> Result<usize, Error> {
        if payloads.is_empty() {
            return Ok(0);
        }
        let keys = [self.keys.pending()];
        let (mut index, mut last, mut count) = (0_i64, Vec::new(), 0);
        loop {
            let mut arguments = vec![decimal(index), last, decimal(PAGE)];
            arguments.extend_from_slice(payloads);
            let (next, anchor, end, found): (i64, Vec<u8>, i64, Vec<Vec<u8>>) =
                self.call(&script::FIND, &keys, &arguments).await?;
            if next < 0 {
                (index, last) = (0, Vec::new());
                continue;
            }
            for packed in found {
                count += match walk {
                    Walk::Find => 1,
                    // Somebody else may have been faster: then the next one with this value is the first.
                    Walk::TakeFirst | Walk::TakeAll => self.take_out(vec![packed]).await?,
                };
                if count > 0 && matches!(walk, Walk::Find | Walk::TakeFirst) {
                    return Ok(count);
                }
            }
            if end == 1 {
                return Ok(count);
            }
            (index, last) = (next, anchor);
        }
    }

    pub(super) async fn take_out(&self, packed: Vec<Vec<u8>>) -> Result<usize, Error> {
        let keys = [self.keys.pending(), self.keys.timeouts()];
        let taken: Vec<usize> = self.call(&script::TAKE_OUT, &keys, &packed).await?;
        Ok(taken.into_iter().sum())
    }
}

//! Verification of a table: every checksum, and that index, blocks and expiries agree.

use dwell_model::{MessageId, Number, Timestamp};

use super::block::TableEntry;
use super::reader::Table;
use super::section::Section;
use crate::sealed::{ReadError, Result};

impl Table {
    /// Reads the whole file. `progress` receives the number of bytes read since its last call.
    ///
    /// # Errors
    /// The first error found.
    pub(crate) fn verify(&self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        self.verify_each(progress, &mut |_| ())
    }

    /// The same, and calls `each` for each entry that was read.
    pub(crate) fn verify_each(
        &self,
        progress: &mut dyn FnMut(u64),
        each: &mut dyn FnMut(&TableEntry),
    ) -> Result<()> {
        let blocks = &self.index.blocks;
        let mut sections = self.sections().iter();
        let mut seen: Option<Section> = None;
        let mut last: Option<(Timestamp, MessageId)> = None;
        let mut numbers: Option<(Number, Number)> = None;
        let mut expiries = Vec::new();
        let mut block = 0;
        let mut begins = 0;
        while block < blocks.len() {
            let from = u64::from(blocks.spot(block).at);
            block = self.read_through(block, &mut |found, body| {
                each(&found);
                let TableEntry { ordinal, entry, body: place } = found;
                let wrong = |reason: String| {
                    Err(ReadError::damaged(
                        self.path(),
                        u64::from(place.at),
                        format!("{reason} at entry {ordinal}"),
                    ))
                };
                let key = (entry.standing.due, entry.id);
                if begins < blocks.len() && blocks.spot(begins).first == ordinal {
                    if blocks.key(begins) != (key.0.as_ms(), key.1.as_bits()) {
                        return wrong("a block does not begin as the index says".into());
                    }
                    begins += 1;
                }
                match seen.as_mut().filter(|section| section.takes(&entry)) {
                    Some(_) if last >= Some(key) => return wrong("messages are out of order".into()),
                    Some(section) => section.add(&entry, body.len()),
                    None => {
                        if seen.is_some() && seen.as_ref() != sections.next() {
                            return wrong("the index says other of the section that ends".into());
                        }
                        seen = Some(Section::beginning_with(&entry, ordinal, body.len()));
                    }
                }
                last = Some(key);
                let (lowest, highest) = numbers.unwrap_or((entry.number, entry.number));
                numbers = Some((lowest.min(entry.number), highest.max(entry.number)));
                expiries.extend(entry.standing.expires.map(|expires| (expires, ordinal)));
                Ok(())
            })?;
            let end = if block < blocks.len() { blocks.spot(block).at } else { blocks.end() };
            progress(u64::from(end) - from);
        }
        let wrong = |reason| Err(ReadError::damaged(self.path(), self.opened.index_at, reason));
        if seen.as_ref() != sections.next() || sections.next().is_some() {
            return wrong("the index says other of the last section");
        }
        if numbers != Some(self.number_range()) {
            return wrong("the index says other of the messages' numbers");
        }
        expiries.sort_unstable();
        if self.expiries(None, Timestamp::MAX, usize::MAX)? != expiries
            || expiries.len() != self.expiry_count() as usize
        {
            return wrong("the expiries are not those of the messages");
        }
        progress(self.size() - u64::from(blocks.end()));
        Ok(())
    }
}

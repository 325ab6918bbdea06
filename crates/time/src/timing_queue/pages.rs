//! The pages in time order, and how a page is found by instant.
//!
//! Each page covers the instants from its *bound* to the bound of the next page. A new entry goes to the last page
//! whose bound is not after it. So of several pages with one bound (more equal instants than a page holds), the later
//! pages hold the later inserts. When a page is split or continued, the gap between the two belongs to the one with
//! fewer entries, so that a page full of one instant receives no further entries. Bounds are stored in blocks of about
//! a hundred, and the first bounds of all blocks in one list: a search looks at two short sorted lists that stay in the
//! processor's cache.

use std::mem;

use super::meter;
use super::page::{PAGE_MAX, Page, PageHead, Scratch};
use super::run::RunEntry;
use super::slots::{EntryPosition, PAGES, Slots};
use super::sort::Sorter;

/// The maximum number of pages per block.
const BLOCK: usize = 128;
/// A page with more live entries than this is nearly full: removing its dead entries alone gains too little room.
const NEARLY_FULL: usize = PAGE_MAX - PAGE_MAX / 4;

/// Some consecutive pages.
#[derive(Debug, Default)]
struct Block {
    bounds: Vec<i64>,
    /// `pages[i]` is the number of the page with `bounds[i]`.
    pages: Vec<u32>,
}

/// The position of a page in the order.
#[derive(Clone, Copy, Debug)]
struct PagePosition {
    block: usize,
    at: usize,
}

#[derive(Debug, Default)]
pub(super) struct Pages {
    /// The first bound of each block.
    firsts: Vec<i64>,
    /// None of them is empty.
    blocks: Vec<Block>,
    /// All pages by number; those in `free` are not in the order.
    all: Vec<Page>,
    free: Vec<u32>,
    scratch: Scratch,
}

impl Pages {
    /// The instant from which on entries belong to pages. `None` while there is no page.
    #[inline]
    pub(super) fn first_bound(&self) -> Option<i64> {
        self.firsts.first().copied()
    }

    /// The page for an entry of `due`, which is not before the first bound. The page has room for the entry.
    #[inline]
    pub(super) fn with_room_for<T>(&mut self, due: i64, slots: &mut Slots<T>) -> u32 {
        let spot = self.last_at_or_before(due);
        let number = self.number(spot);
        if self.all[number as usize].has_room() { number } else { self.make_room(spot, due, slots) }
    }

    #[inline]
    pub(super) fn push(&mut self, number: u32, due: i64, slot: u32) {
        self.all[number as usize].push(due, slot);
    }

    /// Inserts sorted entries before all pages.
    #[cold]
    pub(super) fn push_first<T>(&mut self, entries: &[RunEntry], slots: &mut Slots<T>) {
        let (Some(earliest), Some(last)) = (entries.first(), entries.last()) else { return };
        let Some(number) = self.first_to_extend(entries.len()) else {
            self.insert(PagePosition { block: 0, at: 0 }, Page::ascending(entries), slots);
            return;
        };
        let page = &mut self.all[number as usize];
        let mut behind = Vec::new();
        if last.due == page.bound {
            // Entries of that instant in the page were inserted later.
            page.purge(number, slots);
            meter::touched(page.live());
            behind.extend(page.entries());
            *page = Page::new(page.bound);
        }
        page.bound = earliest.due;
        self.blocks[0].bounds[0] = earliest.due;
        self.firsts[0] = earliest.due;
        meter::touched(entries.len());
        for entry in entries {
            slots.move_to(entry.slot, EntryPosition::page(number));
            page.push(entry.due, entry.slot);
        }
        behind.iter().for_each(|entry| page.push(entry.due, entry.slot));
    }

    /// The first page, if it is so small that `count` earlier entries fit.
    fn first_to_extend(&self, count: usize) -> Option<u32> {
        let number = *self.blocks.first()?.pages.first()?;
        self.all[number as usize].has_room_for(count).then_some(number)
    }

    /// Takes out the earliest entries: a piece of the first page, or all of it if it is not much larger.
    pub(super) fn take_piece<T>(&mut self, sorter: &mut Sorter, slots: &mut Slots<T>) -> Option<PageHead> {
        let number = *self.blocks.first()?.pages.first()?;
        let page = &mut self.all[number as usize];
        page.purge(number, slots);
        sorter.sort(page);
        let piece = page.take_piece();
        match page.first_due() {
            Some(first) => {
                page.bound = first;
                self.blocks[0].bounds[0] = first;
                self.firsts[0] = first;
            }
            None => drop(self.unlink(PagePosition { block: 0, at: 0 })),
        }
        Some(piece)
    }

    /// Counts a dead entry of the page `number`: its slot no longer stands there.
    #[inline]
    pub(super) fn one_has_left<T>(&mut self, number: u32, slots: &mut Slots<T>) {
        let page = &mut self.all[number as usize];
        page.one_has_left();
        if page.is_sparse() || page.live() == 0 {
            self.tidy(number, slots);
        }
    }

    #[cold]
    fn tidy<T>(&mut self, number: u32, slots: &mut Slots<T>) {
        let page = &mut self.all[number as usize];
        if page.live() == 0 {
            self.unlink(self.spot(number));
        } else {
            page.purge(number, slots);
            self.merge_around(number, slots);
        }
    }

    /// The pages in time order, with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Page)> {
        let numbers = self.blocks.iter().flat_map(|block| &block.pages);
        numbers.map(|number| (*number, &self.all[*number as usize]))
    }

    /// The pages in time order, without those that hold only entries before `from`.
    pub(super) fn iter_from(&self, from: i64) -> impl Iterator<Item = (u32, &Page)> {
        // Starts at the last page whose bound is before `from`: the pages before it end at its bound.
        let block = self.firsts.partition_point(|first| *first < from).saturating_sub(1);
        let bounds = self.blocks.get(block).map_or(&[][..], |block| &block.bounds);
        let at = bounds.partition_point(|bound| *bound < from).saturating_sub(1);
        let numbers = self.blocks.get(block..).unwrap_or_default().iter().flat_map(|block| &block.pages);
        numbers.skip(at).map(|number| (*number, &self.all[*number as usize]))
    }

    /// The number of entries that are due at `now`.
    pub(super) fn count_due<T>(&self, now: i64, slots: &Slots<T>) -> usize {
        let mut count = 0;
        let mut pages = self.iter().take_while(|(_, page)| page.bound <= now).peekable();
        while let Some((number, page)) = pages.next() {
            // The entries of a page that is followed by another end at the other's bound.
            count += match pages.peek() {
                Some(_) => page.live(),
                None => page.living(number, slots).filter(|entry| entry.due <= now).count(),
            };
        }
        count
    }

    #[cfg(test)]
    pub(super) fn is_full(&self, number: u32) -> bool {
        !self.all[number as usize].has_room()
    }

    /// The allocated bytes, without the buffers for splitting pages.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let blocks = self.blocks.iter().map(|block| {
            block.bounds.capacity() * size_of::<i64>() + block.pages.capacity() * size_of::<u32>()
        });
        self.all.iter().map(Page::bytes).sum::<usize>()
            + self.all.capacity() * size_of::<Page>()
            + blocks.sum::<usize>()
            + self.blocks.capacity() * size_of::<Block>()
            + self.firsts.capacity() * size_of::<i64>()
            + self.free.capacity() * size_of::<u32>()
    }

    pub(super) fn clear(&mut self) {
        *self = Pages::default();
    }

    #[inline]
    fn number(&self, spot: PagePosition) -> u32 {
        self.blocks[spot.block].pages[spot.at]
    }

    #[inline]
    fn last_at_or_before(&self, due: i64) -> PagePosition {
        let block = self.firsts.partition_point(|first| *first <= due) - 1;
        let at = self.blocks[block].bounds.partition_point(|bound| *bound <= due) - 1;
        PagePosition { block, at }
    }

    /// The position of the page `number`.
    ///
    /// Walks over the later pages with the same bound: some ten thousand if a hundred million entries are of one
    /// instant, and a dozen times while all entries of a page leave.
    fn spot(&self, number: u32) -> PagePosition {
        let mut spot = self.last_at_or_before(self.all[number as usize].bound);
        loop {
            let pages = &self.blocks[spot.block].pages;
            meter::touched(spot.at + 1);
            if let Some(at) = pages[..=spot.at].iter().rposition(|other| *other == number) {
                return PagePosition { at, ..spot };
            }
            let block = spot.block.checked_sub(1).expect("a page stands among those of its bound");
            spot = PagePosition { block, at: self.blocks[block].pages.len() - 1 };
        }
    }

    fn before(&self, spot: PagePosition) -> Option<PagePosition> {
        if spot.at > 0 {
            return Some(PagePosition { at: spot.at - 1, ..spot });
        }
        let block = spot.block.checked_sub(1)?;
        Some(PagePosition { block, at: self.blocks[block].pages.len() - 1 })
    }

    fn after(&self, spot: PagePosition) -> Option<PagePosition> {
        let next = PagePosition { at: spot.at + 1, ..spot };
        if next.at < self.blocks[next.block].pages.len() {
            return Some(next);
        }
        (next.block + 1 < self.blocks.len()).then_some(PagePosition { block: next.block + 1, at: 0 })
    }

    /// Makes room in or beside the full page at `spot`. Returns the page for an entry of `due`.
    #[cold]
    fn make_room<T>(&mut self, spot: PagePosition, due: i64, slots: &mut Slots<T>) -> u32 {
        let number = self.number(spot);
        let page = &mut self.all[number as usize];
        if page.is_served() && page.has_room_behind(due) {
            return number;
        }
        if !page.is_served() && page.live() > NEARLY_FULL && page.is_continued_by(due) {
            // Rising instants fill page after page; splitting would leave each of them half empty forever. The span
            // between this page's last instant and `due` belongs to the new page: if it belonged to this one, each
            // entry in it would open one more page. The dead entries stay, as they are few: with an item that is moved
            // again and again, they would otherwise be purged each time.
            let page = Page::new(page.bound_behind(due));
            return self.insert(PagePosition { at: spot.at + 1, ..spot }, page, slots);
        }
        page.purge(number, slots);
        if page.is_served() {
            // The remaining entries are sorted, and others would break the order. Small pages are cheap to sort again.
            for piece in page.cut() {
                let spot = self.spot(number);
                self.insert(PagePosition { at: spot.at + 1, ..spot }, piece, slots);
            }
            return self.with_room_for(due, slots);
        }
        if page.live() <= NEARLY_FULL {
            return number;
        }
        // Also if `due` continues it now that the dead entries are gone: with room for one more, the page would be full
        // again at once.
        self.split(number, slots);
        self.with_room_for(due, slots)
    }

    /// Splits a page of more than one entry, without dead ones, until no part is nearly full.
    ///
    /// A part with little room left would be split again and again as neighbouring entries come and go.
    fn split<T>(&mut self, number: u32, slots: &mut Slots<T>) {
        let mut parts = vec![number];
        while let Some(number) = parts.pop() {
            let later = self.all[number as usize].split(&mut self.scratch);
            let spot = self.spot(number);
            let later = self.insert(PagePosition { at: spot.at + 1, ..spot }, later, slots);
            let parted = [number, later].into_iter();
            parts.extend(parted.filter(|number| self.all[*number as usize].live() > NEARLY_FULL));
        }
    }

    /// Updates the slots of a page's entries with their place.
    fn tell_places<T>(&self, number: u32, slots: &mut Slots<T>) {
        let page = &self.all[number as usize];
        meter::touched(page.live());
        for entry in page.entries() {
            slots.move_to(entry.slot, EntryPosition::page(number));
        }
    }

    /// Merges the page with a neighbour, if both together fill at most half a page.
    #[cold]
    fn merge_around<T>(&mut self, number: u32, slots: &mut Slots<T>) {
        let spot = self.spot(number);
        let merged = self.before(spot).is_some_and(|before| self.merge(before, spot, slots));
        if let Some(after) = self.after(spot).filter(|_| !merged) {
            self.merge(spot, after, slots);
        }
    }

    fn merge<T>(&mut self, earlier: PagePosition, later: PagePosition, slots: &mut Slots<T>) -> bool {
        let number = self.number(earlier);
        let both = [number, self.number(later)].map(|number| self.all[number as usize].live());
        if both[0] + both[1] > PAGE_MAX / 8 {
            return false;
        }
        let later_number = self.number(later);
        self.all[later_number as usize].purge(later_number, slots);
        let later = self.unlink(later);
        meter::touched(both[1]);
        let page = &mut self.all[number as usize];
        page.purge(number, slots);
        page.open();
        for entry in later.entries() {
            slots.move_to(entry.slot, EntryPosition::page(number));
            page.push(entry.due, entry.slot);
        }
        true
    }

    /// Gives `page` a number and a position, and updates the slots of its entries.
    fn insert<T>(&mut self, spot: PagePosition, page: Page, slots: &mut Slots<T>) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.all.push(Page::new(0));
            let number = u32::try_from(self.all.len() - 1).ok().filter(|number| *number < PAGES);
            number.expect("there are fewer pages than numbers for them")
        });
        if self.blocks.is_empty() {
            self.blocks.push(Block::default());
            self.firsts.push(page.bound);
        }
        let block = &mut self.blocks[spot.block];
        meter::touched(block.pages.len() - spot.at);
        block.bounds.insert(spot.at, page.bound);
        block.pages.insert(spot.at, number);
        self.firsts[spot.block] = block.bounds[0];
        if block.pages.len() > BLOCK {
            let later =
                Block { bounds: block.bounds.split_off(BLOCK / 2), pages: block.pages.split_off(BLOCK / 2) };
            meter::touched(BLOCK / 2 + self.blocks.len() - spot.block);
            self.firsts.insert(spot.block + 1, later.bounds[0]);
            self.blocks.insert(spot.block + 1, later);
        }
        self.all[number as usize] = page;
        self.tell_places(number, slots);
        number
    }

    /// Removes a page from the order and frees its number.
    fn unlink(&mut self, spot: PagePosition) -> Page {
        let blocks_after = self.blocks.len() - spot.block;
        let block = &mut self.blocks[spot.block];
        meter::touched(block.pages.len() - spot.at);
        block.bounds.remove(spot.at);
        let number = block.pages.remove(spot.at);
        match block.bounds.first() {
            Some(first) => self.firsts[spot.block] = *first,
            None => {
                meter::touched(blocks_after);
                self.blocks.remove(spot.block);
                self.firsts.remove(spot.block);
            }
        }
        self.free.push(number);
        mem::replace(&mut self.all[number as usize], Page::new(0))
    }
}

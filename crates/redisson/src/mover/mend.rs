//! Checks elements before they are due, so that none jams Java's script.
//!
//! A walk along the pending list sees each element once, and the elements that are due first are checked separately.

use std::time::Duration;

use dwell_redis::Link;
use redis::RedisResult;

use super::super::Layout;
use super::super::error::Error;
use super::super::keys::Keys;
use super::super::script::{self, decimal};

/// The number of elements that one script checks.
const PAGE: usize = 100;
/// The maximum number of list entries that all searches of one script may pass, not counting one search that may go to
/// the middle of the list.
const PASSED: usize = 10_000;
/// The number of pages of the list that one sweep walks before due elements are moved again.
const PAGES: usize = 4;
/// The minimum pause between pages, which leaves Redis to other clients.
///
/// Otherwise the pause is as long as the page took.
const REST: Duration = Duration::from_millis(1);
/// The maximum pause, in µs.
const REST_MAX_US: u64 = 100_000;
/// The number of positions of the walk that are kept, as fallbacks when the last one is gone.
const MARKS: usize = 32;

/// The changes of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mended {
    /// Elements that were set aside: no layout can decode them, or no mover would ever take them.
    pub set_aside: usize,
    /// Elements that were rewritten in the layout of the Java clients.
    pub rewritten: usize,
    /// Fractional instants that were rounded up.
    pub rounded: usize,
}

impl Mended {
    /// Whether there were no changes.
    pub fn is_nothing(&self) -> bool {
        *self == Mended::default()
    }

    pub(super) fn add(&mut self, page: Mended) {
        self.set_aside += page.set_aside;
        self.rewritten += page.rewritten;
        self.rounded += page.rounded;
    }
}

/// A position in the pending list: the element before it, by index and by value.
#[derive(Clone, Debug, Default)]
struct MendMark {
    index: i64,
    after: Vec<u8>,
}

/// The script's reply.
type MendReply = (i64, Vec<u8>, i64, usize, usize, usize, usize, u64);

/// The result of one script of the walk.
struct MendPage {
    /// The next position; `None` if the position is lost.
    next: Option<MendMark>,
    is_end: bool,
    mended: Mended,
    took_us: u64,
}

/// The walk of one mover.
#[derive(Debug)]
pub(super) struct Mender {
    layout: Option<Layout>,
    marks: Vec<MendMark>,
    /// Whether the walk has reached the end of the list.
    is_done: bool,
}

impl Mender {
    pub(super) fn new(layout: Option<Layout>) -> Mender {
        Mender { layout, marks: Vec::new(), is_done: true }
    }

    /// Whether the walk has reached the end of the list, so that a sweep has nothing more to check.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Checks the elements that are due first, if `is_new`.
    ///
    /// Then it continues the walk, over elements that were added since it last reached the end of the list, or that
    /// remain of those.
    pub(super) async fn sweep(&mut self, link: &Link, keys: &Keys, is_new: bool) -> Result<Mended, Error> {
        let mut mended = Mended::default();
        self.is_done = false;
        if is_new {
            let first = self.page(link, keys, "timeouts", &MendMark::default()).await?;
            mended.add(first.mended);
        }
        for _ in 0..PAGES {
            let mark = self.marks.last().cloned().unwrap_or_default();
            let page = self.page(link, keys, "list", &mark).await?;
            mended.add(page.mended);
            match page.next {
                // Its element is gone, as due elements are: continue from an older mark, or from the head of the list.
                None => drop(self.marks.pop()),
                Some(next) if next.after.is_empty() => self.marks.clear(),
                Some(next) if next.after != mark.after => self.marks.push(next),
                Some(_) => {}
            }
            if self.marks.len() > MARKS {
                self.marks.remove(0);
            }
            if page.is_end {
                self.is_done = true;
                break;
            }
            tokio::time::sleep(REST.max(Duration::from_micros(page.took_us.min(REST_MAX_US)))).await;
        }
        Ok(mended)
    }

    async fn page(&self, link: &Link, keys: &Keys, of: &str, mark: &MendMark) -> Result<MendPage, Error> {
        let on = [keys.pending(), keys.timeouts(), keys.set_aside()];
        let arguments = [
            of.as_bytes().to_vec(),
            decimal(mark.index),
            mark.after.clone(),
            decimal(PAGE),
            self.layout.map_or("any", Layout::as_str).as_bytes().to_vec(),
            decimal(PASSED),
            decimal(script::MOST_BYTES),
        ];
        let reply: RedisResult<MendReply> = script::MEND.call(link, keys, &on, &arguments).await;
        let (index, after, end, set_aside, rewritten, rounded, _, took_us) =
            reply.map_err(|error| Error::of(keys.name(), &error))?;
        let next = (index >= 0).then_some(MendMark { index, after });
        Ok(MendPage { next, is_end: end == 1, mended: Mended { set_aside, rewritten, rounded }, took_us })
    }
}

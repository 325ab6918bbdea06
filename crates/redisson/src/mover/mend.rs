//! Looking at elements before they are due, so that none jams Java's script: a walk along the pending list that
//! sees each element once, and a look at those that are due first.

use std::time::Duration;

use dwell_redis::Link;
use redis::RedisResult;

use super::super::Layout;
use super::super::error::Error;
use super::super::keys::Keys;
use super::super::script::{self, decimal};

/// How many elements a script looks at.
const PAGE: usize = 100;
/// How many entries of the list all searches of one script may pass, but for one search that may go to its middle.
const PASSED: usize = 10_000;
/// How many pages of the list one sweep walks before what is due has its turn again.
const PAGES: usize = 4;
/// Redis is left to others for as long as a page takes it, and at least so long.
const REST: Duration = Duration::from_millis(1);
/// What it rests at most, in µs.
const REST_MAX_US: u64 = 100_000;
/// How many places of the walk are kept, to go back to when the last one is gone.
const MARKS: usize = 32;

/// What was mended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mended {
    /// Elements set aside: no layout reads them, or no mover would ever take them.
    pub set_aside: usize,
    /// Elements rewritten in the layout that the Java clients read.
    pub rewritten: usize,
    /// Fractional instants rounded up.
    pub rounded: usize,
}

impl Mended {
    /// Whether there was nothing to mend.
    pub fn is_nothing(&self) -> bool {
        *self == Mended::default()
    }

    pub(super) fn add(&mut self, page: Mended) {
        self.set_aside += page.set_aside;
        self.rewritten += page.rewritten;
        self.rounded += page.rounded;
    }
}

/// A place in the pending list: the element before it, by index and by value.
#[derive(Clone, Debug, Default)]
struct Mark {
    index: i64,
    after: Vec<u8>,
}

/// What the script answers.
type Reply = (i64, Vec<u8>, i64, usize, usize, usize, usize, u64);

/// What one script of the walk told.
struct Page {
    /// Where to go on; `None` where the place is lost.
    next: Option<Mark>,
    is_end: bool,
    mended: Mended,
    took_us: u64,
}

/// The walk of one mover.
#[derive(Debug)]
pub(super) struct Mender {
    layout: Option<Layout>,
    marks: Vec<Mark>,
    /// Whether the walk has come to the list's end.
    is_done: bool,
}

impl Mender {
    pub(super) fn new(layout: Option<Layout>) -> Mender {
        Mender { layout, marks: Vec::new(), is_done: true }
    }

    /// Whether a sweep has more to look at.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Looks at what is due first, if `is_new`; then at some of what came since the walk was at the list's end, or of
    /// what is left of that.
    pub(super) async fn sweep(&mut self, link: &Link, keys: &Keys, is_new: bool) -> Result<Mended, Error> {
        let mut mended = Mended::default();
        self.is_done = false;
        if is_new {
            let first = self.page(link, keys, "timeouts", &Mark::default()).await?;
            mended.add(first.mended);
        }
        for _ in 0..PAGES {
            let mark = self.marks.last().cloned().unwrap_or_default();
            let page = self.page(link, keys, "list", &mark).await?;
            mended.add(page.mended);
            match page.next {
                // Its element is gone, as due ones are: an older mark, or the list's head.
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

    async fn page(&self, link: &Link, keys: &Keys, of: &str, mark: &Mark) -> Result<Page, Error> {
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
        let reply: RedisResult<Reply> = script::MEND.call(link, keys, &on, &arguments).await;
        let (index, after, end, set_aside, rewritten, rounded, _, took_us) =
            reply.map_err(|error| Error::of(keys.name(), &error))?;
        let next = (index >= 0).then_some(Mark { index, after });
        Ok(Page { next, is_end: end == 1, mended: Mended { set_aside, rewritten, rounded }, took_us })
    }
}

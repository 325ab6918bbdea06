//! Forecasts: the number of cold messages that fall due by given instants, from the indexes of the files.
//!
//! An index has the due of the first entry of each block, and of the last one of each section: so the position of an
//! instant in a section is known to less than a block. The entries in between are taken to be spread evenly, and the
//! [bound](Forecast::within) counts all of them that may be on the other side.
//!
//! The number of scheduled messages is exact all the same, as in [`count`](ColdSet::count). Nothing is read for it
//! while takes keep up: then the first cold entry of a section is known to be due later. Where ready messages wait, the
//! block in which they end is read, at most once until more become ready.

use dwell_model::{QueueName, Timestamp};
use dwell_store::Forecast;

use super::{ColdSet, SectionRef};
use crate::sealed;
use crate::table::{Between, SectionState};

/// Bounds and an estimate of the number of entries that are due by an instant.
#[derive(Clone, Copy, Debug, Default)]
struct Estimate {
    least: u64,
    about: u64,
    most: u64,
}

impl ColdSet {
    pub(super) fn due_by(
        &mut self,
        queue: &QueueName,
        ready_until: Timestamp,
        edges: &[Timestamp],
    ) -> sealed::Result<Forecast> {
        let mut order: Vec<usize> = (0..edges.len()).collect();
        order.sort_by_key(|at| edges[*at]);
        let rising: Vec<Timestamp> = order.iter().map(|at| edges[*at]).collect();
        let mut estimates = vec![Estimate::default(); edges.len()];
        // The entries that are due by an edge and every later one, in sections that end before it.
        let mut ended = vec![0; edges.len() + 1];
        let mut scheduled = 0;
        for at in self.sections_of(queue) {
            let section = self.section(at);
            if section.state != SectionState::Scheduled
                || self.files[&at.file].sections[at.section as usize].live == 0
            {
                continue;
            }
            let (min_due, max_due) = (section.min_due, section.max_due);
            let not_ready = self.scheduled_in(at, ready_until)?;
            scheduled += not_ready.count;
            let end = rising.partition_point(|edge| *edge < max_due);
            ended[end] += not_ready.count;
            // By an instant that has come, every entry that is due is ready.
            let first = rising.partition_point(|edge| *edge <= not_ready.ready_until || *edge < min_due);
            if first < end {
                self.add_within(at, &not_ready, &rising[first..end], &mut estimates[first..end]);
            }
        }
        let mut due_by = vec![0; edges.len()];
        let (mut sum, mut within) = (0, 0);
        for ((estimate, ended), at) in estimates.iter().zip(&ended).zip(order) {
            sum += ended;
            due_by[at] = sum + estimate.about;
            within = within.max(estimate.most - estimate.about).max(estimate.about - estimate.least);
        }
        Ok(Forecast { scheduled, due_by, within })
    }

    /// The scheduled entries of a scheduled section.
    fn scheduled_in(&mut self, at: SectionRef, ready_until: Timestamp) -> sealed::Result<Unripe> {
        let until = self.ready_until(at, ready_until);
        let first = match self.known_unripe(at, until) {
            Some(first) => first,
            None => self.not_ready_from(at, ready_until)?,
        };
        let (file, end) = (&self.files[&at.file], self.section(at).range().end);
        Ok(Unripe { first, ready_until: until, count: u64::from(file.out.live(first..end)) })
    }

    /// An ordinal of a scheduled section behind all cold entries that are due by `until`, and not behind any other cold
    /// one, if one is known without reading.
    fn known_unripe(&self, at: SectionRef, until: Timestamp) -> Option<u32> {
        let (file, section) = (&self.files[&at.file], self.section(at));
        let Between { low, high, .. } = file.file.due_after(section, until);
        if file.out.live(low..high) == 0 {
            return Some(high);
        }
        let first = file.next_live(at.section as usize, file.sections[at.section as usize].from)?;
        (self.due_known(at, first).0 > until).then_some(first)
    }

    /// Counts the entries of a section that are due by each of these instants, which rise and lie within it.
    fn add_within(
        &self,
        at: SectionRef,
        not_ready: &Unripe,
        edges: &[Timestamp],
        estimates: &mut [Estimate],
    ) {
        let (file, section) = (&self.files[&at.file], self.section(at));
        let (mut counted_to, mut counted) = (not_ready.first, 0);
        for (edge, estimate) in edges.iter().zip(estimates) {
            let Between { low, high, from, to } = file.file.due_after(section, *edge);
            let (low, from) = (low.max(counted_to), from.max(not_ready.ready_until));
            counted += u64::from(file.out.live(counted_to..low));
            counted_to = low;
            let between = u64::from(file.out.live(low..high.max(low)));
            estimate.least += counted;
            estimate.about += counted + share(between, edge.ms_since(from), to.ms_since(from));
            estimate.most += counted + between;
        }
    }
}

/// The scheduled entries of a section.
struct Unripe {
    /// The first entry that is not ready; none behind it is.
    first: u32,
    /// Entries that are due by this instant are ready.
    ready_until: Timestamp,
    /// The number of cold entries from `first` on.
    count: u64,
}

/// `count` times `part` over `whole`, rounded.
fn share(count: u64, part: u64, whole: u64) -> u64 {
    let (part, whole) = (u128::from(part), u128::from(whole.max(1)));
    ((u128::from(count) * part + whole / 2) / whole).min(u128::from(count)) as u64
}

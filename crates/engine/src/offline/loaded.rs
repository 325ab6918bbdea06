//! A directory as an opening would find it, read without a change.

use std::path::Path;

use bytes::Bytes;
use dwell_model::{Limits, MessageId, Now};
use dwell_store::core::{Cold, Core, CoreConfig, Durability, Log, PutRecord, Record};

use crate::OpenError;
use crate::cold::ColdSet;
use crate::disk::Disk;
use crate::journal::segment::BodyRef;
use crate::manifest::Manifest;
use crate::open::take_in;
use crate::recovery::recover;
use crate::replay::Replayer;
use crate::report::OpenReport;
use crate::shard::step::Step;

/// The number of cold messages that are read at a time.
const WINDOW: usize = 512;
/// The number of blocks in the cache.
const BLOCKS: usize = 256;

/// The content of a directory.
pub(super) struct LoadedDirectory {
    pub(super) manifest: Manifest,
    pub(super) report: OpenReport,
    pub(super) step: Step,
}

impl LoadedDirectory {
    /// Reads manifest, checkpoint and journal.
    pub(super) fn read(disk: &dyn Disk, dir: &Path) -> Result<LoadedDirectory, OpenError> {
        let manifest = Manifest::read(disk, dir)?;
        let mut step = Step::new(
            core(manifest.incarnation),
            ColdSet::new(manifest.directory, WINDOW, (BLOCKS, usize::MAX), WINDOW),
        );
        take_in(disk, dir, &manifest, &mut step, false)?;
        let recovered = recover(disk, dir, &manifest, &mut Replayer::new(&mut step))?;
        Ok(LoadedDirectory { manifest, report: recovered.report, step })
    }

    /// Applies the passage of time, as an opening now would.
    pub(super) fn open(&mut self, now: Now) {
        let (core, cold) = self.step.both();
        core.opened(now, &mut UnrecordedLog(cold));
        while core.release_session_leases(now, &mut UnrecordedLog(cold)) {}
    }

    /// The number of messages.
    pub(super) fn messages(&self) -> u64 {
        self.step.core().len() as u64 + self.step.core().cold_len()
    }
}

/// A core that accepts what incarnations up to this one have written.
pub(super) fn core(incarnation: u32) -> Core<BodyRef> {
    let incarnation = (incarnation + 1).min(MessageId::MAX_INCARNATION);
    Core::new(CoreConfig { incarnation, ..CoreConfig::new(Limits::default(), 0) })
}

/// A log that ignores its records: the directory stays as it is.
pub(super) struct UnrecordedLog<'a>(pub(super) &'a mut ColdSet);

impl Log<BodyRef> for UnrecordedLog<'_> {
    fn put(&mut self, _: &PutRecord, _: &Bytes) -> BodyRef {
        unreachable!("nothing is put into a directory that is looked at")
    }

    fn record(&mut self, _: &Record, _: Durability) {}

    fn cold(&mut self) -> Option<&mut dyn Cold<BodyRef>> {
        Some(self.0)
    }
}

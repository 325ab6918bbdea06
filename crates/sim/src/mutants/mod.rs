//! `mutants`: the engine with one fault planted, again and again; seeds have to find each of them.
//!
//! A fault is planted at a seam, so that the engine itself knows nothing of it: in the disk under it, or in the
//! store before it.
//!
//! # Layout
//! - this file: which mutants there are, and the command that hunts them
//! - `disk`: disks that do not do what they say
//! - `store`: stores that do something else than they were asked

mod disk;
mod store;

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

pub(crate) use disk::MutantDisk;
pub(crate) use store::MutantStore;

use crate::run::run_mutant;

/// A fault to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// In the disk.
    Disk(DiskFault),
    /// In the store.
    Store(StoreFault),
}

/// What a disk does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskFault {
    /// `fdatasync` does nothing.
    SyncSkipped,
    /// Every third `fdatasync` does nothing.
    SyncSometimesSkipped,
    /// `fdatasync` is done when the next one is asked for: answers and deliveries leave before it.
    SyncLate,
    /// A sync of a directory does nothing.
    DirectorySyncSkipped,
    /// A sync of a due file or a run does nothing: the manifest names what may be torn.
    SealedSyncSkipped,
    /// A write to a due file or a run, now and then, goes nowhere.
    SealedWriteLost,
    /// Due files and runs are synced only when the next retirement begins: the manifest names them before.
    SealedSyncLate,
    /// Segments go that the new manifest does not need, before it is durable.
    SegmentRemovedEarly,
    /// A manifest forgets that an entry of a due file is settled.
    SettledBitDropped,
    /// A manifest forgets its newest run: where messages lie that were moved.
    RedirectLost,
    /// A manifest forgets that a message in a due file is leased.
    HoldLost,
    /// A sync that fails is reported as one that succeeded.
    SyncFailureIgnored,
    /// A write that fails is reported as one that succeeded.
    WriteFailureIgnored,
    /// A write to the journal, now and then, goes nowhere.
    WriteLost,
    /// The torn tail is cut one byte too early: the last byte of the journal is gone when it is next opened.
    TailCutShort,
    /// The last sector of the journal is gone when it is next opened.
    LastSectorLost,
    /// A read of a due file or a run comes back, now and then, with one bit changed.
    ReadFlipped,
    /// The manifest stays as it was first: incarnations, and so ids and lease tokens, are used again.
    ManifestKept,
}

/// What a store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreFault {
    /// An ack, now and then, is answered and not done: its record is dropped.
    AckDropped,
    /// A cancel, now and then, is answered and not done.
    CancelDropped,
    /// A reschedule, now and then, is answered and not done.
    RescheduleDropped,
    /// A setting is answered and not made.
    SettingDropped,
    /// A message is handed out before its instant.
    Early,
    /// The same receipt is handed out twice.
    ReceiptTwice,
    /// A take hands its messages out in reverse.
    Reversed,
    /// A take hands out one message less than it could.
    Withheld,
    /// A retry does not spend an attempt.
    AttemptForgotten,
    /// A put's token is not looked at.
    TokenIgnored,
    /// A put's key conflicts are not looked at: the key is dropped.
    KeyIgnored,
    /// A put's expiry is not looked at.
    ExpiryIgnored,
    /// A lease is shorter than it says.
    LeaseShort,
    /// A bound lease outlives its process.
    BoundOutlives,
    /// A body comes back with one bit changed.
    BitRot,
    /// A message is leased, and nobody is handed it.
    HandedToNobody,
    /// A message that could not be read is passed off as one that was.
    UnreadPassedOff,
    /// A revive of all is answered and not done.
    ReviveDropped,
    /// A revive of all leaves the last message dead: it ends one too early.
    ReviveCutShort,
    /// A peek shows the second message of a state.
    PeekedSecond,
    /// A peek at the dead, now and then, finds none.
    PeekMissesDead,
    /// Counts are off by one.
    CountOff,
    /// A queue keeps one dead message more than its `dead_max` says.
    RetainedTooMany,
    /// A dead message is discarded when half of its `dead_ttl` is over.
    DiscardedEarly,
    /// The end of a lease is answered and not made: its receipt still works.
    EndedLeaseWorks,
    /// A queue has one message more leased than its `max_leased` says.
    CapPassed,
    /// What comes under the token of something else is answered as that was.
    MismatchPassedOff,
}

/// All of them, by the names that the command prints.
const ALL: [(&str, Mutant); 45] = [
    ("sync skipped", Mutant::Disk(DiskFault::SyncSkipped)),
    ("sync sometimes skipped", Mutant::Disk(DiskFault::SyncSometimesSkipped)),
    ("answer and delivery before the sync", Mutant::Disk(DiskFault::SyncLate)),
    ("sync of the directory skipped", Mutant::Disk(DiskFault::DirectorySyncSkipped)),
    ("sync of due files skipped", Mutant::Disk(DiskFault::SealedSyncSkipped)),
    ("write to a due file lost", Mutant::Disk(DiskFault::SealedWriteLost)),
    ("manifest published before its files are synced", Mutant::Disk(DiskFault::SealedSyncLate)),
    ("segment removed before the manifest is durable", Mutant::Disk(DiskFault::SegmentRemovedEarly)),
    ("settled bit dropped", Mutant::Disk(DiskFault::SettledBitDropped)),
    ("redirect lost", Mutant::Disk(DiskFault::RedirectLost)),
    ("hold of a lease in a due file lost", Mutant::Disk(DiskFault::HoldLost)),
    ("failed sync ignored", Mutant::Disk(DiskFault::SyncFailureIgnored)),
    ("failed write ignored", Mutant::Disk(DiskFault::WriteFailureIgnored)),
    ("write lost", Mutant::Disk(DiskFault::WriteLost)),
    ("read of a due file off by a bit", Mutant::Disk(DiskFault::ReadFlipped)),
    ("torn tail cut one byte too early", Mutant::Disk(DiskFault::TailCutShort)),
    ("last sector lost", Mutant::Disk(DiskFault::LastSectorLost)),
    ("incarnation used again", Mutant::Disk(DiskFault::ManifestKept)),
    ("ack dropped", Mutant::Store(StoreFault::AckDropped)),
    ("cancel dropped", Mutant::Store(StoreFault::CancelDropped)),
    ("reschedule dropped", Mutant::Store(StoreFault::RescheduleDropped)),
    ("setting dropped", Mutant::Store(StoreFault::SettingDropped)),
    ("early delivery", Mutant::Store(StoreFault::Early)),
    ("receipt issued twice", Mutant::Store(StoreFault::ReceiptTwice)),
    ("order reversed", Mutant::Store(StoreFault::Reversed)),
    ("message withheld", Mutant::Store(StoreFault::Withheld)),
    ("attempt forgotten", Mutant::Store(StoreFault::AttemptForgotten)),
    ("token ignored", Mutant::Store(StoreFault::TokenIgnored)),
    ("key ignored", Mutant::Store(StoreFault::KeyIgnored)),
    ("expiry ignored", Mutant::Store(StoreFault::ExpiryIgnored)),
    ("lease shorter than said", Mutant::Store(StoreFault::LeaseShort)),
    ("bound lease outlives its process", Mutant::Store(StoreFault::BoundOutlives)),
    ("bit rot in a body", Mutant::Store(StoreFault::BitRot)),
    ("lease of a message that nobody is handed", Mutant::Store(StoreFault::HandedToNobody)),
    ("message that could not be read passed off", Mutant::Store(StoreFault::UnreadPassedOff)),
    ("revive of all dropped", Mutant::Store(StoreFault::ReviveDropped)),
    ("revive of all ends one too early", Mutant::Store(StoreFault::ReviveCutShort)),
    ("peek shows the second", Mutant::Store(StoreFault::PeekedSecond)),
    ("peek misses the dead", Mutant::Store(StoreFault::PeekMissesDead)),
    ("count off by one", Mutant::Store(StoreFault::CountOff)),
    ("dead message too many retained", Mutant::Store(StoreFault::RetainedTooMany)),
    ("dead message discarded too early", Mutant::Store(StoreFault::DiscardedEarly)),
    ("receipt of an ended lease works", Mutant::Store(StoreFault::EndedLeaseWorks)),
    ("cap of a queue's leases passed", Mutant::Store(StoreFault::CapPassed)),
    ("other put under a token passed off", Mutant::Store(StoreFault::MismatchPassedOff)),
];

/// How many seeds a mutant may survive.
pub(crate) const SEEDS: u64 = 400;

/// Hunts every mutant with up to `seeds` seeds. True if each was found.
pub(crate) fn hunt(seeds: u64) -> bool {
    let mut caught = 0;
    // An assertion that finds a mutant is what is hoped for: its backtrace would look like a failure in a log.
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    for (name, mutant) in ALL {
        match catch(mutant, seeds) {
            Some((seed, by)) => {
                caught += 1;
                println!("caught    {name:<48} by seed {seed}: {by}");
            }
            None => println!("SURVIVED  {name:<48} {seeds} seeds"),
        }
    }
    set_hook(hook);
    println!("mutants {}, caught {caught}", ALL.len());
    caught == ALL.len()
}

/// The first seed that finds the mutant, and what it accuses it of.
fn catch(mutant: Mutant, seeds: u64) -> Option<(u64, String)> {
    (1..=seeds).find_map(|seed| {
        let by = match catch_unwind(AssertUnwindSafe(|| run_mutant(seed, mutant))) {
            Ok(outcome) => outcome.violations.first().map(|violation| format!("{:?}", violation.kind)),
            // An assertion of the engine's own has found it.
            Err(_) => Some("an assertion".to_owned()),
        };
        by.map(|by| (seed, by))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_is_caught() {
        for (name, mutant) in ALL {
            assert!(catch(mutant, SEEDS).is_some(), "'{name}' survives {SEEDS} seeds");
        }
    }

    #[test]
    fn the_same_seeds_accuse_nobody_without_a_fault() {
        for seed in 1..=20 {
            assert!(crate::run::run_seed(seed, false).violations.is_empty(), "dwell-sim run --seed {seed}");
        }
    }
}

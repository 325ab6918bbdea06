//! `mutants`: runs the engine with one fault planted at a time; the seeds have to find each of them.
//!
//! A fault is planted at an interface, so that the engine itself is not
//! changed: in the disk below it, or in the store in front of it.
//!
//! # Layout
//! - this file: the list of mutants, and the command that hunts them
//! - `disk`: disks with a fault
//! - `store`: stores with a fault

mod disk;
mod store;

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

pub(crate) use disk::MutantDisk;
pub(crate) use store::{Memory, MutantStore};

use crate::run::run_mutant;

/// A fault to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// In the disk.
    Disk(DiskFault),
    /// In the store.
    Store(StoreFault),
}

/// The faults of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskFault {
    /// `fdatasync` does nothing.
    SyncSkipped,
    /// Every third `fdatasync` does nothing.
    SyncSometimesSkipped,
    /// `fdatasync` runs only at the next call: answers and deliveries leave before it.
    SyncLate,
    /// A sync of a directory does nothing.
    DirectorySyncSkipped,
    /// A sync of a table or an index run does nothing: the manifest names files that may be torn.
    SealedSyncSkipped,
    /// A write to a table or an index run is lost now and then.
    SealedWriteLost,
    /// Tables and index runs are synced only when the next flush begins: the manifest names them earlier.
    SealedSyncLate,
    /// Segments that the new manifest does not need are removed before it is durable.
    SegmentRemovedEarly,
    /// A manifest loses the bit of a settled entry of a table.
    SettledBitDropped,
    /// A manifest loses its newest index run, which has the redirects of messages that were moved.
    RedirectLost,
    /// A manifest loses the lease of a message in a table.
    HoldLost,
    /// A sync that fails is reported as one that succeeded.
    SyncFailureIgnored,
    /// A write that fails is reported as one that succeeded.
    WriteFailureIgnored,
    /// A write to the journal is lost now and then.
    WriteLost,
    /// The torn tail is cut one byte too early: the last byte of the journal is gone when it is next opened.
    TailCutShort,
    /// The last sector of the journal is gone when it is next opened.
    LastSectorLost,
    /// A read of a table or an index run returns one flipped bit now and then.
    ReadFlipped,
    /// The manifest stays as it was first: incarnations, and so ids and lease tokens, are reused.
    ManifestKept,
}

/// The faults of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreFault {
    /// An ack is answered now and then without being done: its record is dropped.
    AckDropped,
    /// A cancel is answered now and then without being done.
    CancelDropped,
    /// A reschedule is answered now and then without being done.
    RescheduleDropped,
    /// A change of a setting is answered without being done.
    SettingDropped,
    /// A message is delivered before its instant.
    Early,
    /// The same receipt is issued twice.
    ReceiptTwice,
    /// A take returns its messages in reverse order.
    Reversed,
    /// A take returns one message less than it could.
    Withheld,
    /// A retry does not spend an attempt.
    AttemptForgotten,
    /// The idempotency key of a put is ignored.
    IdempotencyKeyIgnored,
    /// The key of a put is ignored: there are no conflicts.
    KeyIgnored,
    /// The expiry of a put is ignored.
    ExpiryIgnored,
    /// A lease is shorter than reported.
    LeaseShort,
    /// A session lease outlives its process.
    SessionLeaseOutlives,
    /// A body is returned with one bit flipped.
    BitRot,
    /// A message is leased, but not delivered.
    HandedToNobody,
    /// A take that could not read a message returns as if it had.
    UnreadPassedOff,
    /// A revive of all is answered without being done.
    ReviveDropped,
    /// A revive of all stops one message too early.
    ReviveCutShort,
    /// A peek returns the second message of a state.
    PeekedSecond,
    /// A peek at the dead messages returns none now and then.
    PeekMissesDead,
    /// Counts are off by one.
    CountOff,
    /// A queue keeps one dead message more than its `dead_max` says.
    RetainedTooMany,
    /// A dead message is discarded when half of its `dead_ttl` is over.
    DiscardedEarly,
    /// The end of a lease is answered without being done: its receipt still works.
    EndedLeaseWorks,
    /// A queue has one more message leased than its `max_leased` allows.
    CapPassed,
    /// Another put under a used idempotency key gets the answer of the first.
    MismatchPassedOff,
    /// A queue that backs off from the first lapse on does not: the message is ready at once.
    LapseBackoffIgnored,
    /// A get by key returns an older dead message than the youngest.
    OlderDeadFound,
    /// A get by key returns no dead message although there is one.
    DeadByKeyMissed,
    /// What expires is dead in a queue that was set to drop it.
    DropKept,
    /// What expires is dropped in a queue that was set to keep it as dead.
    DeadDropped,
    /// A death by a lapse or by an expiry is not counted.
    DeathUncounted,
    /// A discard by retention is not counted.
    DiscardUncounted,
    /// The drop of an expired message is not counted.
    DropUncounted,
    /// The end of a lease ends a later one of the message too.
    TakesIgnored,
}

/// All mutants, by the names that the command prints.
const ALL: [(&str, Mutant); 54] = [
    ("sync skipped", Mutant::Disk(DiskFault::SyncSkipped)),
    ("sync sometimes skipped", Mutant::Disk(DiskFault::SyncSometimesSkipped)),
    ("answer and delivery before the sync", Mutant::Disk(DiskFault::SyncLate)),
    ("sync of the directory skipped", Mutant::Disk(DiskFault::DirectorySyncSkipped)),
    ("sync of tables skipped", Mutant::Disk(DiskFault::SealedSyncSkipped)),
    ("write to a table lost", Mutant::Disk(DiskFault::SealedWriteLost)),
    ("manifest published before its files are synced", Mutant::Disk(DiskFault::SealedSyncLate)),
    ("segment removed before the manifest is durable", Mutant::Disk(DiskFault::SegmentRemovedEarly)),
    ("settled bit dropped", Mutant::Disk(DiskFault::SettledBitDropped)),
    ("redirect lost", Mutant::Disk(DiskFault::RedirectLost)),
    ("hold of a lease in a table lost", Mutant::Disk(DiskFault::HoldLost)),
    ("failed sync ignored", Mutant::Disk(DiskFault::SyncFailureIgnored)),
    ("failed write ignored", Mutant::Disk(DiskFault::WriteFailureIgnored)),
    ("write lost", Mutant::Disk(DiskFault::WriteLost)),
    ("read of a table off by a bit", Mutant::Disk(DiskFault::ReadFlipped)),
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
    ("idempotency key ignored", Mutant::Store(StoreFault::IdempotencyKeyIgnored)),
    ("key ignored", Mutant::Store(StoreFault::KeyIgnored)),
    ("expiry ignored", Mutant::Store(StoreFault::ExpiryIgnored)),
    ("lease shorter than said", Mutant::Store(StoreFault::LeaseShort)),
    ("session lease outlives its process", Mutant::Store(StoreFault::SessionLeaseOutlives)),
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
    ("other put under an idempotency key passed off", Mutant::Store(StoreFault::MismatchPassedOff)),
    ("backoff after the first lapse ignored", Mutant::Store(StoreFault::LapseBackoffIgnored)),
    ("older dead message found by key", Mutant::Store(StoreFault::OlderDeadFound)),
    ("dead message not found by key", Mutant::Store(StoreFault::DeadByKeyMissed)),
    ("expired message kept that should be dropped", Mutant::Store(StoreFault::DropKept)),
    ("expired message dropped that should be kept", Mutant::Store(StoreFault::DeadDropped)),
    ("death by time not counted", Mutant::Store(StoreFault::DeathUncounted)),
    ("discard by retention not counted", Mutant::Store(StoreFault::DiscardUncounted)),
    ("drop of an expired message not counted", Mutant::Store(StoreFault::DropUncounted)),
    ("lease of a later holder ended", Mutant::Store(StoreFault::TakesIgnored)),
];

/// The most seeds that a mutant may survive.
pub(crate) const SEEDS: u64 = 400;

/// Runs the mutants whose names contain `only`, each with up to `seeds` seeds. Returns true if each was found, and there are
/// any.
pub(crate) fn hunt(seeds: u64, only: &str) -> bool {
    let (mut hunted, mut caught) = (0, 0);
    // An assertion that finds a mutant is expected: its backtrace would look like a failure in a log.
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    for (name, mutant) in ALL.into_iter().filter(|(name, _)| name.contains(only)) {
        hunted += 1;
        match catch(mutant, seeds) {
            Some((seed, by)) => {
                caught += 1;
                println!("caught    {name:<48} by seed {seed}: {by}");
            }
            None => println!("SURVIVED  {name:<48} {seeds} seeds"),
        }
    }
    set_hook(hook);
    println!("mutants {hunted}, caught {caught}");
    caught == hunted && hunted > 0
}

/// The first seed that finds the mutant, and its first violation.
fn catch(mutant: Mutant, seeds: u64) -> Option<(u64, String)> {
    (1..=seeds).find_map(|seed| {
        let by = match catch_unwind(AssertUnwindSafe(|| run_mutant(seed, mutant))) {
            Ok(outcome) => outcome.violations.first().map(|violation| format!("{:?}", violation.kind)),
            // An assertion of the engine has found it.
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

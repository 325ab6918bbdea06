//! The engine from outside: one file per kind of failure or load that it must survive.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod backup;
mod bad_sectors;
mod bounds;
mod burials;
mod conformance;
mod crash;
mod damaged_files;
mod damaged_runs;
mod doors;
mod expiry;
mod faults;
mod fixtures;
mod lapses;
mod lasting;
mod leases;
mod long_runs;
mod mortal;
mod offline;
mod opening;
mod peeks;
mod pressure;
mod processes;
mod reads;
mod recovery;
mod restart;
mod spawning;
mod spins;
mod support;
mod bulk;
mod threads;
mod turns;
mod unread;
mod years;

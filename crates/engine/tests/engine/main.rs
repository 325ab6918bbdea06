//! The engine from outside: one file per kind of failure or load that it must survive.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod backup;
mod bad_sectors;
mod bounds;
mod death_order;
mod conformance;
mod crash;
mod damaged_tables;
mod damaged_index_runs;
mod blocked_creation;
mod expiry;
mod faults;
mod fixtures;
mod lapses;
mod durability;
mod leases;
mod split_index_runs;
mod dying_disk;
mod offline;
mod opening;
mod dead_peeks;
mod pressure;
mod processes;
mod reads;
mod recovery;
mod restart;
mod thread_failures;
mod idle_shard;
mod support;
mod bulk;
mod threads;
mod inline_calls;
mod unreadable_messages;
mod disk_growth;

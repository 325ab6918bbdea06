//! The engine from outside: one file per kind of failure or load that it must survive.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod backup;
mod bad_sectors;
mod blocked_creation;
mod bounds;
mod bulk;
mod conformance;
mod crash;
mod damaged_index_runs;
mod damaged_tables;
mod dead_peeks;
mod death_order;
mod disk_growth;
mod durability;
mod dying_disk;
mod expiry;
mod faults;
mod fixtures;
mod idle_shard;
mod inline_calls;
mod lapses;
mod leases;
mod offline;
mod opening;
mod pressure;
mod processes;
mod reads;
mod recovery;
mod restart;
mod split_index_runs;
mod support;
mod thread_failures;
mod threads;
mod unreadable_messages;

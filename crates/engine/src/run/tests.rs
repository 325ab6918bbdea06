//! Runs on a disk in memory.

//! Runs: written, looked up, merged, damaged.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dwell_fuzz::bounded(data, dwell_engine::fuzzing::index_run));

//! A segment of the journal: its batches, and the evidence behind damage.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dwell_fuzz::bounded(data, dwell_engine::fuzzing::segment));

//! Opening a real directory with some of its bytes changed.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dwell_fuzz::bounded(data, dwell_engine::fuzzing::damage));

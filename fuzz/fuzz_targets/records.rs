//! The journal's records: read, written, read again.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dwell_fuzz::bounded(data, dwell_engine::fuzzing::records));

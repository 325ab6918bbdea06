//! Opening a directory with arbitrary content and right checksums, and using the result.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dwell_fuzz::bounded(data, dwell_engine::fuzzing::recovery));

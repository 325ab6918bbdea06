//! Opening a directory of any content with right checksums, and using what was opened.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dwell_fuzz::bounded(data, dwell_engine::fuzzing::recovery));

//! Splitting a streamed body into lines, wherever it is cut into chunks.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dwell_fuzz::bounded(data, dwell_server::fuzzing::ndjson));

//! A packed element of a Redisson delayed queue.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dwell_fuzz::bounded(data, dwell_redisson::fuzzing::element));

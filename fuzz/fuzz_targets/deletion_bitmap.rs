//! Sets of settlements, compared with a list of bits.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dwell_fuzz::bounded(data, dwell_engine::fuzzing::deletion_bitmap));

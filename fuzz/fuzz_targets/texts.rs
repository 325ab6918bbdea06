//! Ids, receipts, cursors, instants, durations, names: read, printed, read again.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dwell_fuzz::bounded(data, dwell_model::fuzzing::texts));

//! The input of a connection of beanstalkd's protocol.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dwell_fuzz::bounded(data, dwell_server::fuzzing::beanstalkd));

//! The fuzzers' seeds and findings, run through their entry points.

use dwell_server::fuzzing::{ENTRIES, seeds};
use dwell_testkit::corpus::{replay, replay_seeds};

#[test]
fn every_file_of_the_corpus_passes() {
    replay(env!("CARGO_MANIFEST_DIR"), &ENTRIES);
}

#[test]
fn what_is_asked_today_passes() {
    replay_seeds(&ENTRIES, &seeds());
}

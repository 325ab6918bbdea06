//! Replays the seeds and findings of the fuzzers through the functions that they call.

use dwell_engine::fuzzing::{ENTRIES, seeds};
use dwell_testkit::corpus::{replay, replay_seeds};

#[test]
fn every_file_of_the_corpus_passes() {
    replay(env!("CARGO_MANIFEST_DIR"), &ENTRIES);
}

#[test]
fn what_is_written_today_passes() {
    replay_seeds(&ENTRIES, &seeds());
}

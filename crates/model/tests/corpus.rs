//! Replays the seeds and findings of the text fuzzer through the function that it calls.

use dwell_model::fuzzing::{seeds, texts};
use dwell_testkit::corpus::replay;

#[test]
fn every_file_of_the_corpus_passes() {
    replay(env!("CARGO_MANIFEST_DIR"), &[("texts", texts)]);
}

#[test]
fn what_is_printed_today_passes() {
    for (name, bytes) in seeds() {
        println!("{name}");
        texts(&bytes);
    }
}

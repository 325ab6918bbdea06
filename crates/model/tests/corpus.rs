//! What the fuzzer of texts began with and found, run through the function that it calls.

use std::path::Path;

use dwell_model::fuzzing::{seeds, texts};

#[test]
fn every_file_of_the_corpus_passes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/texts");
    let listed = std::fs::read_dir(&folder).expect("the corpus is there");
    let mut files: Vec<_> = listed.map(|file| file.expect("it can be listed").path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for path in files {
        // The last line that a failed test prints is the file that it failed at.
        println!("{}", path.display());
        texts(&std::fs::read(path).expect("it was listed"));
    }
}

#[test]
fn what_is_printed_today_passes() {
    for (name, bytes) in seeds() {
        println!("{name}");
        texts(&bytes);
    }
}

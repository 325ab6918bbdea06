//! What fuzzers began with and found, run through the functions that they call.

use std::path::Path;

use dwell_redisson::fuzzing::{ENTRIES, seeds};

#[test]
fn every_file_of_the_corpus_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, run) in ENTRIES {
        let listed = std::fs::read_dir(corpus.join(name)).expect("every entry has a corpus");
        let mut files: Vec<_> = listed.map(|file| file.expect("it can be listed").path()).collect();
        files.sort();
        assert!(!files.is_empty(), "{name} has no corpus");
        for path in files {
            // The last line that a failed test prints is the file that it failed at.
            println!("{}", path.display());
            run(&std::fs::read(path).expect("it was listed"));
        }
    }
}

#[test]
fn what_is_written_today_passes() {
    for (name, run) in ENTRIES {
        let ours: Vec<_> = seeds().into_iter().filter(|(entry, ..)| *entry == name).collect();
        assert!(!ours.is_empty(), "{name} has no seeds");
        for (_, seed, bytes) in ours {
            println!("{name}: {seed}");
            run(&bytes);
        }
    }
}

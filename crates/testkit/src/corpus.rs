//! Replays the seeds and findings of fuzzers through the functions that they call.

use std::path::Path;

/// The name of a corpus, and the function that its fuzzer calls.
pub type Entry = (&'static str, fn(&[u8]));

/// Replays every file of each corpus. If one panics, the last line printed is its path.
///
/// `crate_folder` is the caller's `CARGO_MANIFEST_DIR`, two folders below the root.
pub fn replay(crate_folder: &str, entries: &[Entry]) {
    for (name, run) in entries {
        let folder = Path::new(crate_folder).join("../../fuzz/corpus").join(name);
        let listed = std::fs::read_dir(folder).expect("every entry has a corpus");
        let mut files: Vec<_> = listed.map(|file| file.expect("it can be listed").path()).collect();
        files.sort();
        assert!(!files.is_empty(), "{name} has no corpus");
        for path in files {
            println!("{}", path.display());
            run(&std::fs::read(path).expect("it was listed"));
        }
    }
}

/// Replays `seeds`: for each the name of a corpus, its own name, and its bytes.
///
/// If one panics, the last line printed is its name.
pub fn replay_seeds(entries: &[Entry], seeds: &[(&'static str, String, Vec<u8>)]) {
    for (name, run) in entries {
        let ours: Vec<_> = seeds.iter().filter(|(entry, ..)| entry == name).collect();
        assert!(!ours.is_empty(), "{name} has no seeds");
        for (_, seed, bytes) in ours {
            println!("{name}: {seed}");
            run(bytes);
        }
    }
}

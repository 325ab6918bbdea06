//! Entry points for the fuzzers of the engine: one function for each kind of bytes that it reads.
//!
//! Each takes any bytes, and panics if the engine does what it must not. `fuzz/` runs them with bytes that a fuzzer
//! finds; an ordinary test runs them with the files in `fuzz/corpus/` and with those of `seeds`.
//!
//! # Layout
//! - `records`, `segment`, `manifest`: one reader each
//! - `sealed`: sealed files of any content; `due`, `run`, `settled`: each written, read, and damaged
//! - `recovery`: opening a directory that `script` has described, and using it
//! - `damage`: opening a real directory with some of its bytes changed, and checking the result
//! - `forge`: manifests that omit something, for the simulation's mutants
//! - `input`: bytes as numbers; `driven`: an engine without a thread, for these checks
//! - `seeds`: real bytes to begin with

mod damage;
mod driven;
mod due;
pub mod forge;
mod input;
mod manifest;
mod records;
mod recovery;
mod run;
mod script;
mod sealed;
mod seeds;
mod segment;
mod settled;

pub use damage::damage;
pub use due::due;
pub use manifest::manifest;
pub use records::records;
pub use recovery::recovery;
pub use run::run;
pub use sealed::sealed;
pub use seeds::{Seed, seeds};
pub use segment::segment;
pub use settled::settled;

/// A function above, with the name of its corpus.
pub type Entry = (&'static str, fn(&[u8]));

/// All entry points.
pub const ENTRIES: [Entry; 9] = [
    ("records", records),
    ("segment", segment),
    ("manifest", manifest),
    ("recovery", recovery),
    ("damage", damage),
    ("sealed", sealed),
    ("due", due),
    ("run", run),
    ("settled", settled),
];

//! Entry points for the fuzzers of the engine: one function for each kind of bytes that it reads.
//!
//! Each takes any bytes, and panics if the engine does what it must not. `fuzz/` runs them with bytes that a fuzzer
//! finds; an ordinary test runs them with the files in `fuzz/corpus/` and with those of `seeds`.
//!
//! # Layout
//! - `records`, `segment`, `manifest`: one reader each
//! - `sealed`: sealed files of any content; `table`, `index_run`, `deletion_bitmap`: each written, read, and damaged
//! - `recovery`: opening a directory that `script` has described, and using it
//! - `damage`: opening a real directory with some of its bytes changed, and checking the result
//! - `forge`: manifests that omit something, for the simulation's mutants
//! - `input`: bytes as numbers; `driven`: an engine without a thread, for these checks
//! - `seeds`: real bytes to begin with

mod damage;
mod deletion_bitmap;
mod driven;
pub mod forge;
mod index_run;
mod input;
mod manifest;
mod records;
mod recovery;
mod script;
mod sealed;
mod seeds;
mod segment;
mod table;

pub use damage::damage;
pub use deletion_bitmap::deletion_bitmap;
pub use index_run::index_run;
pub use manifest::manifest;
pub use records::records;
pub use recovery::recovery;
pub use sealed::sealed;
pub use seeds::{Seed, seeds};
pub use segment::segment;
pub use table::table;

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
    ("table", table),
    ("index_run", index_run),
    ("deletion_bitmap", deletion_bitmap),
];

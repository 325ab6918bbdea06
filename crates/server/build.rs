//! Gathers the pages of `docs/errors`, so that a server answers with them where there is no repository at hand.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut pages = String::from("&[\n");
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    for name in names {
        let Some(code) = name.strip_suffix(".md").filter(|code| *code != "README") else { continue };
        // Debug quotes a path and a word as Rust reads them.
        let _ = writeln!(pages, "    ({code:?}, include_str!({:?})),", folder.join(&name));
    }
    pages.push_str("]\n");
    let out = Path::new(&env::var_os("OUT_DIR").unwrap_or_default()).join("error_pages.rs");
    if let Err(error) = fs::write(&out, pages) {
        panic!("{}: {error}", out.display());
    }
}

//! The pages of `docs/errors`, embedded so that a server can answer with them outside the repository.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

/// Writes the table of codes and pages. Without the folder it is empty.
pub(crate) fn gather(folder: &Path, to: &Path) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut pages = String::from("&[\n");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    for name in names {
        let Some(code) = name.strip_suffix(".md").filter(|code| *code != "README") else { continue };
        // Debug quotes a path and a word as Rust reads them.
        let _ = writeln!(pages, "    ({code:?}, include_str!({:?})),", folder.join(&name));
    }
    pages.push_str("]\n");
    fs::write(to, pages)
}

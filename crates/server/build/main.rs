//! Gathers what the server embeds: the pages of error codes, and the files of the web page.

mod errors;
mod page;

use std::path::PathBuf;
use std::{env, io};

fn main() -> io::Result<()> {
    let variable = |name: &str| {
        env::var_os(name).map(PathBuf::from).ok_or_else(|| io::Error::other(format!("Cargo sets {name}")))
    };
    let (package, out) = (variable("CARGO_MANIFEST_DIR")?, variable("OUT_DIR")?);
    errors::gather(&package.join("../../docs/errors"), &out.join("error_pages.rs"))?;
    page::gather(&package.join("src/page/assets"), &out)
}

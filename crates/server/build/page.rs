//! The files of the web page: each as it is and compressed, and one digest of them all.
//!
//! The digest stands in the address of each file, so that a browser may keep them for ever. It covers every name and every
//! byte, the document's too: a page is of one version.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

/// The document. It names the others, and is served at `/`.
const DOCUMENT: &str = "index.html";

/// What the document has in place of the digest.
const DIGEST_MARK: &str = "{digest}";

/// A file, by its name.
struct File {
    name: String,
    bytes: Vec<u8>,
}

/// Writes the files into `out`, and `page_files.rs`, which embeds them.
pub(crate) fn gather(folder: &Path, out: &Path) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = read(folder)?;
    let digest = digest(&files);
    for file in files.iter_mut().filter(|file| file.name == DOCUMENT) {
        let text = String::from_utf8(std::mem::take(&mut file.bytes)).map_err(io::Error::other)?;
        file.bytes = text.replace(DIGEST_MARK, &digest).into_bytes();
    }

    let to = out.join("page");
    fs::create_dir_all(&to)?;
    let mut source = format!("pub(super) const DIGEST: &str = {digest:?};\n");
    let (document, others): (Vec<&File>, Vec<&File>) = files.iter().partition(|file| file.name == DOCUMENT);
    let document = document.first().ok_or_else(|| io::Error::other("the page has no document"))?;
    let _ = writeln!(source, "pub(super) static DOCUMENT: File = {};", embed(document, &to)?);
    source.push_str("pub(super) static FILES: &[File] = &[\n");
    for file in others {
        let _ = writeln!(source, "    {},", embed(file, &to)?);
    }
    source.push_str("];\n");
    fs::write(out.join("page_files.rs"), source)
}

/// All files, by name.
fn read(folder: &Path) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().into_string().map_err(|name| {
            io::Error::other(format!("{} is no name of a file of the page", name.display()))
        })?;
        files.push(File { bytes: fs::read(entry.path())?, name });
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(files)
}

/// Sixteen hexadecimal digits: enough to distinguish versions.
fn digest(files: &[File]) -> String {
    let mut hash = Sha256::new();
    for File { name, bytes } in files {
        for part in [name.as_bytes(), bytes] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a file twice, and returns the expression that embeds both.
fn embed(file: &File, to: &Path) -> io::Result<String> {
    let content_type = match file.name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => return Err(io::Error::other(format!("the page has no content type for {}", file.name))),
    };
    let (plain, small) = (to.join(&file.name), to.join(format!("{}.gz", file.name)));
    fs::write(&plain, &file.bytes)?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&file.bytes)?;
    fs::write(&small, encoder.finish()?)?;
    // Debug quotes a path and a text as Rust reads them.
    Ok(format!(
        "File {{ name: {:?}, content_type: {content_type:?}, plain: include_bytes!({plain:?}), gzip: include_bytes!({small:?}) }}",
        file.name
    ))
}

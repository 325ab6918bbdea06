//! Reads a file line by line in one pass: text, number, and the digest of the file so far.
//!
//! The digest of line *n* is SHA-256 over the file up to and including line *n*, truncated to 128 bits. It is computed
//! in the pass that reads the lines, so a file of any size (and a pipe) is read once. It identifies "line *n* of this
//! file" as well as the number with the digest of the whole file does, and better in one case: a file to which lines
//! were appended still has the digests of its old lines.

use std::io::{self, BufRead};

use sha2::{Digest as _, Sha256};

/// The maximum length of a line: the longest body (64 MiB) in base64, and room for the rest. A longer line is refused.
pub(crate) const MAX_LINE_LEN: usize = 96 * 1024 * 1024;

/// 128 bits that identify a line by everything up to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LineDigest([u8; 16]);

impl std::fmt::Display for LineDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// One line that is not blank.
#[derive(Debug)]
pub(crate) struct InputLine {
    /// Its number in the file, from 1; blank lines count.
    pub(crate) number: u64,
    /// See the module.
    pub(crate) digest: LineDigest,
    /// Its bytes without the line's end; `None` if there are more than [`MAX_LINE_LEN`].
    pub(crate) text: Option<Vec<u8>>,
}

/// The lines of a reader.
pub(crate) struct Lines<R> {
    reader: R,
    hasher: Sha256,
    number: u64,
    bytes: u64,
    max_len: usize,
}

impl<R: BufRead> Lines<R> {
    /// The lines of `reader`. `run` distinguishes deliberate runs over the same file.
    pub(crate) fn new(reader: R, run: &str) -> Lines<R> {
        let mut hasher = Sha256::new();
        hasher.update((run.len() as u64).to_le_bytes());
        hasher.update(run.as_bytes());
        Lines { reader, hasher, number: 0, bytes: 0, max_len: MAX_LINE_LEN }
    }

    /// The number of bytes read.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next line that is not blank; `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<InputLine>> {
        while let Some(text) = self.next_text()? {
            self.number += 1;
            // The last line counts as ended even without a line end: a later append changes nothing for it.
            self.hasher.update(b"\n");
            let blank = text.as_ref().is_some_and(|text| text.iter().all(u8::is_ascii_whitespace));
            if !blank {
                return Ok(Some(InputLine { number: self.number, digest: self.digest(), text }));
            }
        }
        Ok(None)
    }

    fn digest(&self) -> LineDigest {
        let whole = self.hasher.clone().finalize();
        LineDigest(*whole.first_chunk().expect("SHA-256 has 32 bytes"))
    }

    /// The next line, `Some(None)` if it is too long, `None` at the end.
    fn next_text(&mut self) -> io::Result<Option<Option<Vec<u8>>>> {
        let mut text = Some(Vec::new());
        let mut started = false;
        loop {
            let buffer = match self.reader.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if buffer.is_empty() {
                return Ok(started.then_some(text));
            }
            started = true;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let piece = &buffer[..end.unwrap_or(buffer.len())];
            self.hasher.update(piece);
            text = text.filter(|text| text.len() + piece.len() <= self.max_len);
            if let Some(text) = &mut text {
                text.extend_from_slice(piece);
            }
            let consumed = piece.len() + usize::from(end.is_some());
            self.reader.consume(consumed);
            self.bytes += consumed as u64;
            if end.is_some() {
                return Ok(Some(text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, run: &str) -> Vec<(u64, String, String)> {
        // A small buffer, so that lines span several fills.
        let mut lines = Lines::new(io::BufReader::with_capacity(3, text.as_bytes()), run);
        let mut read = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            let text = String::from_utf8(line.text.unwrap()).unwrap();
            read.push((line.number, text, line.digest.to_string()));
        }
        assert_eq!(lines.bytes(), text.len() as u64);
        read
    }

    #[test]
    fn numbers_count_blank_lines_and_the_last_line_needs_no_end() {
        let lines = read("one\n\n  \ntwo\nthree", "");
        let seen: Vec<(u64, &str)> = lines.iter().map(|(n, text, _)| (*n, text.as_str())).collect();
        assert_eq!(seen, [(1, "one"), (4, "two"), (5, "three")]);
        assert!(read("", "").is_empty());
    }

    #[test]
    fn a_digest_names_the_file_up_to_its_line() {
        let short = read("one\ntwo", "");
        let appended = read("one\ntwo\nthree\n", "");
        let changed = read("One\ntwo\n", "");
        assert_eq!(short[1].2, appended[1].2, "an append leaves old lines their digests");
        assert_ne!(short[1].2, changed[1].2, "a change shows in all lines after it");
        assert_ne!(short[0].2, short[1].2);
        assert_ne!(read("a\na\n", "")[0].2, read("a\na\n", "")[1].2, "equal lines differ");
        assert_ne!(short[0].2, read("one\ntwo", "again")[0].2, "a run of its own");
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_and_the_next_one_read() {
        let text = format!("{}\nnext\n", "x".repeat(100));
        let mut lines = Lines::new(io::BufReader::with_capacity(7, text.as_bytes()), "");
        lines.max_len = 99;
        assert!(lines.next().unwrap().unwrap().text.is_none());
        assert_eq!(lines.next().unwrap().unwrap().text.unwrap(), b"next");
        assert!(lines.next().unwrap().is_none());
    }
}

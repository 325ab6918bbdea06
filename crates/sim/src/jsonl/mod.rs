//! The input of a load: a JSONL file made from a seed, each line of which can be made again from its number.

mod body;
mod line;

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

pub(crate) use line::{InputLine, QUEUES, queue_name};

/// The totals of a written file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WrittenFile {
    /// The number of lines.
    pub(crate) lines: u64,
    /// The length of the file in bytes.
    pub(crate) bytes: u64,
    /// The number of lines with a key.
    pub(crate) keyed: u64,
    /// The total length of all bodies in bytes.
    pub(crate) body_bytes: u64,
}

/// Writes the first `lines` lines of `seed` to `path`.
///
/// # Errors
/// Those of the file.
pub(crate) fn write(path: &Path, seed: u64, lines: u64) -> io::Result<WrittenFile> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut written = WrittenFile { lines, ..WrittenFile::default() };
    let mut text = Vec::new();
    for number in 0..lines {
        let line = InputLine::make(seed, number);
        text.clear();
        line.write_json(&mut text);
        text.push(b'\n');
        file.write_all(&text)?;
        written.bytes += text.len() as u64;
        written.keyed += u64::from(line.key.is_some());
        written.body_bytes += line.body.len() as u64;
    }
    file.flush()?;
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
        let directory = tempfile::tempdir().unwrap();
        let make = |name: &str, seed: u64| {
            let path = directory.path().join(name);
            let written = write(&path, seed, 500).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(bytes.len() as u64, written.bytes);
            bytes
        };
        assert_eq!(make("a", 7), make("b", 7));
        assert_ne!(make("a", 7), make("c", 8));
    }

    #[test]
    fn lines_are_json_and_hold_what_they_say() {
        let mut text = Vec::new();
        for number in 0..300 {
            let line = InputLine::make(3, number);
            text.clear();
            line.write_json(&mut text);
            let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
            let body = match (json["body"].as_str(), json["body_base64"].as_str()) {
                (Some(body), None) => body.as_bytes().to_vec(),
                (None, Some(body)) => {
                    use base64::Engine as _;
                    base64::engine::general_purpose::STANDARD.decode(body).unwrap()
                }
                other => panic!("line {number}: one body, not {other:?}"),
            };
            assert_eq!(body, line.body);
            assert_eq!(InputLine::number_in(&body), Some(number));
            assert_eq!(json["queue"].as_str().unwrap(), queue_name(line.queue));
            assert_eq!(json["key"].as_str(), line.key.as_deref());
            assert_eq!(json["delay_ms"].as_u64(), Some(line.delay_ms));
        }
    }

    #[test]
    fn the_file_has_the_shape_that_the_documentation_says() {
        let lines: Vec<InputLine> = (0..20_000).map(|number| InputLine::make(1, number)).collect();
        let mut sizes: Vec<usize> = lines.iter().map(|line| line.body.len()).collect();
        sizes.sort_unstable();
        let median = sizes[sizes.len() / 2];
        assert!((170..=230).contains(&median), "median {median}");
        assert!(*sizes.last().unwrap() <= 64 * 1024);
        let large = sizes.iter().filter(|size| **size > 16 * 1024).count();
        assert!((5..=50).contains(&large), "{large} of 20,000 above 16 KiB");
        let share =
            |of: fn(&InputLine) -> bool| lines.iter().filter(|line| of(line)).count() * 100 / lines.len();
        assert!((30..=36).contains(&share(|line| line.key.is_some())));
        assert!((20..=30).contains(&share(|line| line.delay_ms == 0)));
        assert!((15..=25).contains(&share(|line| line.delay_ms > 86_400_000)));
        assert!(lines.iter().all(|line| line.delay_ms <= 365 * 86_400_000));
        assert!((20..=30).contains(&share(|line| std::str::from_utf8(&line.body).is_err())));
        for queue in 0..QUEUES {
            assert!(lines.iter().any(|line| line.queue == queue));
        }
        let bytes: u64 = lines
            .iter()
            .map(|line| {
                let mut text = Vec::new();
                line.write_json(&mut text);
                text.len() as u64 + 1
            })
            .sum();
        let per_line = bytes / lines.len() as u64;
        assert!((850..=1_150).contains(&per_line), "about 1 GB a million lines, not {per_line} a line");
    }
}

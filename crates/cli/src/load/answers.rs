//! The file of answers: one JSON object for each completed line, in the file's order.
//!
//!     {"line":17,"digest":"0f1e…","outcome":"created","id":"…","number":9,"due":"…"}
//!     {"line":18,"digest":"77ab…","outcome":"refused","code":"invalid_key","detail":"…"}
//!
//! A line is written only after the server has answered it (or it was refused unsent). Since the order is the file's,
//! the last complete object says where a later run continues; its digest confirms that it is the same file. A partial
//! object that a crash left is cut off.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use dwell_wire::PutAnswer;
use serde::{Deserialize, Serialize};

use super::ledger::{LineOutcome, Reason};
use super::lines::LineDigest;
use crate::exit::{Exit, Failure, Own};

/// The last line of an earlier run.
#[derive(Debug, Deserialize)]
pub(crate) struct Resume {
    pub(crate) line: u64,
    pub(crate) digest: String,
}

/// The writer of answers, which discards them if no file was named.
pub(crate) struct Answers {
    file: Option<BufWriter<File>>,
}

#[derive(Serialize)]
struct AnswerLine<'a> {
    line: u64,
    digest: String,
    #[serde(flatten)]
    what: LineAnswer<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum LineAnswer<'a> {
    Put(&'a PutAnswer),
    Refused {
        outcome: &'static str,
        #[serde(flatten)]
        reason: &'a Reason,
    },
}

impl Answers {
    /// Opens the file, and returns where the run that wrote it stopped.
    pub(crate) fn open(path: Option<&Path>) -> Result<(Answers, Option<Resume>), Failure> {
        let Some(path) = path else { return Ok((Answers { file: None }, None)) };
        let broken = |error| Failure::file(Own::Answers.code(), path.display(), &error);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(broken)?;
        let (end, last) = last_line(&mut file).map_err(broken)?;
        let resume = match last {
            None if end == 0 && file.metadata().map_err(broken)?.len() > 0 => Err(()),
            None => Ok(None),
            Some(line) => serde_json::from_slice(&line).map(Some).map_err(drop),
        };
        let resume = resume.map_err(|()| {
            let detail = format!("{} is not a file of answers; it is left as it is", path.display());
            Failure::new(Exit::Usage, Own::ForeignAnswers.code(), detail)
        })?;
        file.set_len(end).map_err(broken)?;
        file.seek(SeekFrom::Start(end)).map_err(broken)?;
        Ok((Answers { file: Some(BufWriter::with_capacity(64 * 1024, file)) }, resume))
    }

    /// Writes the result of a line.
    pub(crate) fn tell(&mut self, line: u64, digest: LineDigest, outcome: &LineOutcome) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let what = match outcome {
            LineOutcome::Put(answer) => LineAnswer::Put(answer),
            LineOutcome::Refused(reason) => LineAnswer::Refused { outcome: "refused", reason },
        };
        serde_json::to_writer(&mut *file, &AnswerLine { line, digest: digest.to_string(), what })?;
        file.write_all(b"\n")
    }

    /// Passes buffered answers to the operating system.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| file.flush())
    }
}

/// The end of the last complete line of `file`, and the line.
fn last_line(file: &mut File) -> io::Result<(u64, Option<Vec<u8>>)> {
    const STEP: u64 = 64 * 1024;
    let mut start = file.seek(SeekFrom::End(0))?;
    let mut tail = Vec::new();
    loop {
        let newlines: Vec<usize> =
            tail.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
        match newlines.as_slice() {
            [.., before, last] => {
                return Ok((start + *last as u64 + 1, Some(tail[before + 1..*last].to_vec())));
            }
            [last] if start == 0 => return Ok((*last as u64 + 1, Some(tail[..*last].to_vec()))),
            [] if start == 0 => return Ok((0, None)),
            _ => {}
        }
        let step = STEP.min(start);
        start -= step;
        let mut more = vec![0; step as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut more)?;
        more.append(&mut tail);
        tail = more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(content: &str) -> Result<(String, Option<u64>), String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answers");
        std::fs::write(&path, content).unwrap();
        let opened = Answers::open(Some(&path)).map(|(_, resume)| resume.map(|resume| resume.line));
        let left = std::fs::read_to_string(&path).unwrap();
        opened.map(|line| (left, line)).map_err(|failure| failure.code)
    }

    #[test]
    fn goes_on_behind_the_last_whole_line() {
        let one = "{\"line\":1,\"digest\":\"a\"}\n";
        let two = "{\"line\":2,\"digest\":\"b\"}\n";
        assert_eq!(open("").unwrap(), (String::new(), None));
        assert_eq!(open(one).unwrap(), (one.to_owned(), Some(1)));
        assert_eq!(open(&format!("{one}{two}")).unwrap(), (format!("{one}{two}"), Some(2)));
        for cut in 1..two.len() {
            let torn = format!("{one}{}", &two[..cut]);
            assert_eq!(open(&torn).unwrap(), (one.to_owned(), Some(1)), "{torn}");
        }
        let long = format!("{{\"line\":3,\"digest\":\"c\",\"detail\":\"{}\"}}\n", "x".repeat(200_000));
        assert_eq!(open(&format!("{one}{long}")).unwrap().1, Some(3));
    }

    #[test]
    fn another_file_is_left_as_it_is() {
        for foreign in ["a letter\n", "no end of line", "{\"line\":1}\n"] {
            assert_eq!(open(foreign).unwrap_err(), "foreign_answers");
        }
    }
}

//! The ledger: the lines in progress, and the result of each, written in the file's order.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard};

use dwell_store::Error;
use dwell_wire::PutAnswer;
use serde::Serialize;

use super::answers::Answers;
use super::lines::LineDigest;
use super::progress::LoadProgress;
use crate::exit::{Exit, Failure, Own};

/// The number of lines in progress at which the reader waits.
const FAR_AHEAD: usize = 64 * 1024;
/// The number from which the reader sends its gathered chunks, so that its wait ends.
const AHEAD: usize = FAR_AHEAD / 2;

/// A line's place in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineNumber(u64);

/// Why a line was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Reason {
    pub(crate) code: String,
    pub(crate) detail: String,
}

impl Reason {
    pub(crate) fn new(code: &str, detail: impl ToString) -> Reason {
        Reason { code: code.to_owned(), detail: detail.to_string() }
    }
}

impl From<&Error> for Reason {
    fn from(error: &Error) -> Reason {
        Reason::new(error.code(), error)
    }
}

/// The result of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LineOutcome {
    Put(PutAnswer),
    Refused(Reason),
}

/// The counts of a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    /// Lines that the server has put, in this run or, by their idempotency keys, in an earlier one.
    pub(crate) put: u64,
    /// Lines that were refused.
    pub(crate) refused: u64,
    /// Lines that the file of answers had already.
    pub(crate) skipped: u64,
}

/// A refused line as JSON.
#[derive(Serialize)]
pub(super) struct Rejected<'a> {
    pub(super) line: u64,
    #[serde(flatten)]
    pub(super) reason: &'a Reason,
}

/// The file of refused lines.
pub(crate) struct Rejects(BufWriter<File>);

impl Rejects {
    /// Opens the file at `path`, and appends to it.
    pub(crate) fn create(path: &Path) -> Result<Rejects, Failure> {
        let file = File::options().append(true).create(true).open(path);
        let file = file.map_err(|error| Failure::file(Own::Rejects.code(), path.display(), &error))?;
        Ok(Rejects(BufWriter::new(file)))
    }

    fn tell(&mut self, line: u64, reason: &Reason) -> io::Result<()> {
        serde_json::to_writer(&mut self.0, &Rejected { line, reason })?;
        self.0.write_all(b"\n")
    }
}

/// See the module.
pub(crate) struct LineLedger<'a> {
    state: Mutex<LedgerState>,
    moved: Condvar,
    progress: &'a LoadProgress,
}

struct LedgerState {
    /// Lines in progress, oldest first; those before the first incomplete one are written and removed.
    under_way: VecDeque<LedgerEntry>,
    /// The place of the first of them.
    first: u64,
    answers: Answers,
    rejects: Option<Rejects>,
    summary: Summary,
    failure: Option<Failure>,
    /// Whether a write failed, perhaps within a line: nothing more is written then.
    is_broken: bool,
}

struct LedgerEntry {
    line: u64,
    digest: LineDigest,
    outcome: Option<LineOutcome>,
}

impl<'a> LineLedger<'a> {
    /// An empty ledger.
    pub(crate) fn new(
        answers: Answers,
        rejects: Option<Rejects>,
        progress: &'a LoadProgress,
        skipped: u64,
    ) -> LineLedger<'a> {
        let summary = Summary { skipped, ..Summary::default() };
        LineLedger {
            state: Mutex::new(LedgerState {
                under_way: VecDeque::new(),
                first: 0,
                answers,
                rejects,
                summary,
                failure: None,
                is_broken: false,
            }),
            moved: Condvar::new(),
            progress,
        }
    }

    fn state(&self) -> MutexGuard<'_, LedgerState> {
        self.state.lock().expect("nobody panics while holding the ledger")
    }

    /// Whether the reader should send its gathered chunks.
    pub(crate) fn is_far_ahead(&self) -> bool {
        self.state().under_way.len() >= AHEAD
    }

    /// Adds a line that is to be sent; waits while too many are in progress. `None` after a failure.
    pub(crate) fn enter(&self, line: u64, digest: LineDigest) -> Option<LineNumber> {
        let full = |state: &mut LedgerState| state.under_way.len() >= FAR_AHEAD && state.failure.is_none();
        let mut state = self.moved.wait_while(self.state(), full).expect("as in `state`");
        if state.failure.is_some() {
            return None;
        }
        state.under_way.push_back(LedgerEntry { line, digest, outcome: None });
        Some(LineNumber(state.first + state.under_way.len() as u64 - 1))
    }

    /// Records the results of lines, and writes all results up to the first incomplete line.
    pub(crate) fn settle(&self, outcomes: impl IntoIterator<Item = (LineNumber, LineOutcome)>) {
        let mut state = self.state();
        for (place, outcome) in outcomes {
            let at = (place.0 - state.first) as usize;
            let before = state.under_way[at].outcome.replace(outcome);
            assert!(before.is_none(), "a line is settled once");
        }
        if state.is_broken {
            return;
        }
        if let Err(error) = state.write_down(self.progress) {
            state.is_broken = true;
            let detail = format!("the answers or rejects cannot be written: {error}; run again to go on");
            state.failure.get_or_insert(Failure::new(Exit::Refused, Own::Answers.code(), detail));
        }
        self.moved.notify_all();
    }

    /// Ends the run: nothing more is added.
    pub(crate) fn fail(&self, failure: Failure) {
        self.state().failure.get_or_insert(failure);
        self.moved.notify_all();
    }

    /// Whether the run has failed.
    pub(crate) fn is_failed(&self) -> bool {
        self.state().failure.is_some()
    }

    /// The result of the run: its summary, or its failure.
    pub(crate) fn finish(self) -> Result<Summary, Failure> {
        let state = self.state.into_inner().expect("as in `state`");
        match state.failure {
            Some(mut failure) => {
                if let Some(entry) = state.under_way.front() {
                    failure.detail = format!(
                        "{}; all lines before {} are done with: run the same command again to go on",
                        failure.detail, entry.line
                    );
                }
                Err(failure)
            }
            None => Ok(state.summary),
        }
    }
}

impl LedgerState {
    fn write_down(&mut self, progress: &LoadProgress) -> io::Result<()> {
        while let Some(LedgerEntry { line, digest, outcome: Some(outcome) }) = self.under_way.front() {
            self.answers.tell(*line, *digest, outcome)?;
            match outcome {
                LineOutcome::Put(_) => self.summary.put += 1,
                LineOutcome::Refused(reason) => {
                    self.summary.refused += 1;
                    match &mut self.rejects {
                        Some(rejects) => rejects.tell(*line, reason)?,
                        None => progress.refused(*line, reason)?,
                    }
                }
            }
            self.under_way.pop_front();
            self.first += 1;
        }
        self.answers.flush()?;
        if let Some(rejects) = &mut self.rejects {
            rejects.0.flush()?;
        }
        progress.lines(self.summary.put + self.summary.refused);
        Ok(())
    }
}

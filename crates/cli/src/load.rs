//! `put --from`: puts a file of messages, resumably and with bounded memory.
//!
//! One thread reads lines and gathers them into chunks; each chunk is sent by a *lane*, a thread with one request at a
//! time. A queue's lines are always sent by the same lane, so that they are put in the file's order. The result of each
//! line is recorded in the *ledger*, which writes results in the file's order; the reader waits where it would get too
//! far ahead of the ledger, which bounds memory.
//!
//! # Layout
//! - `lines`: text, number and digest of each line, in one pass
//! - `item`: a line as the server accepts it
//! - `put_connections`: sends chunks, and retries while the server does not answer
//! - `ledger`: the result of each line, in order
//! - `answers`: the file of answers, and where a later run continues
//! - `progress`: the bar; `waits`: reports what a run waits for

mod answers;
mod item;
mod ledger;
mod lines;
mod progress;
mod put_connections;
mod waits;

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::thread;

use dwell_model::QueueName;

use self::answers::{Answers, Resume};
use self::item::LoadItem;
use self::ledger::{LineLedger, LineOutcome, Summary};
use self::lines::Lines;
use self::progress::LoadProgress;
use self::put_connections::PutConnections;
use self::waits::RetryWaits;
use crate::command::{self, Context};
use crate::exit::{Exit, Failure, Own};
use crate::human::{BAD, STRONG};

/// The parameters of a run.
pub(crate) struct LoadOptions {
    /// The file; `-` is standard input.
    pub(crate) from: PathBuf,
    /// The queue of lines that name none.
    pub(crate) queue: Option<QueueName>,
    /// The file of answers, which also says where an earlier run stopped.
    pub(crate) answers: Option<PathBuf>,
    /// The file of refused lines.
    pub(crate) rejects: Option<PathBuf>,
    /// Distinguishes deliberate runs over the same file.
    pub(crate) run: String,
    /// How long to retry while nothing succeeds.
    pub(crate) retry_for_ms: u64,
    /// The number of concurrent requests.
    pub(crate) in_flight: usize,
}

/// Puts the file.
pub(crate) fn run(context: &Context, wish: &LoadOptions) -> command::Outcome {
    let client = context.client()?;
    let (reader, len) = open(wish)?;
    let mut lines = Lines::new(reader, &wish.run);
    let (answers, resume) = Answers::open(wish.answers.as_deref())?;
    let rejects = wish.rejects.as_deref().map(ledger::Rejects::create).transpose()?;
    let progress = LoadProgress::new(context.output.has_progress(), len);
    let skipped = skip(&mut lines, resume.as_ref(), &progress)?;
    let ledger = LineLedger::new(answers, rejects, &progress, skipped);

    let waits = RetryWaits::new(&progress, wish.retry_for_ms);
    let read = thread::scope(|scope| {
        let mut lanes = PutConnections::start(scope, wish.in_flight, client.store(), &waits, &ledger);
        let read = read(&mut lines, wish, &mut lanes, &ledger, &progress);
        lanes.finish();
        read
    });
    let summary = ledger.finish();
    progress.finish();
    read?;
    show(context, &summary?)
}

fn open(wish: &LoadOptions) -> Result<(Box<dyn BufRead>, Option<u64>), Failure> {
    const BUFFER: usize = 256 * 1024;
    if wish.from.as_os_str() == "-" {
        return Ok((Box::new(BufReader::with_capacity(BUFFER, io::stdin())), None));
    }
    let unreadable = |error| Failure::file(Own::Input.code(), wish.from.display(), &error);
    let file = File::open(&wish.from).map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    let len = about.is_file().then_some(about.len());
    Ok((Box::new(BufReader::with_capacity(BUFFER, file)), len))
}

/// Skips the lines in an earlier run's answers; returns how many there were.
fn skip(
    lines: &mut Lines<Box<dyn BufRead>>,
    resume: Option<&Resume>,
    progress: &LoadProgress,
) -> Result<u64, Failure> {
    let Some(resume) = resume else { return Ok(0) };
    let mut skipped = 0;
    loop {
        let line =
            lines.next().map_err(|error| Failure::file(Own::Input.code(), "the file of messages", &error))?;
        let reached = line.as_ref().is_some_and(|line| line.number == resume.line);
        if line.as_ref().is_none_or(|line| line.number > resume.line)
            || (reached && line.is_some_and(|line| line.digest.to_string() != resume.digest))
        {
            let detail =
                "the answers file tells of another file of messages, or of another --run: name a new one";
            return Err(Failure::new(Exit::Usage, Own::ForeignAnswers.code(), detail));
        }
        skipped += 1;
        if reached {
            progress.bytes(lines.bytes());
            return Ok(skipped);
        }
    }
}

/// Reads the lines and passes them to the lanes, until the end or until a failure closes the ledger.
fn read(
    lines: &mut Lines<Box<dyn BufRead>>,
    wish: &LoadOptions,
    lanes: &mut PutConnections<'_>,
    ledger: &LineLedger<'_>,
    progress: &LoadProgress,
) -> Result<(), Failure> {
    loop {
        let line = match lines.next() {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(()),
            Err(error) => return Err(Failure::file(Own::Input.code(), wish.from.display(), &error)),
        };
        progress.bytes(lines.bytes());
        if ledger.is_far_ahead() {
            lanes.send_all();
        }
        let Some(place) = ledger.enter(line.number, line.digest) else {
            return Ok(());
        };
        match LoadItem::new(&line, wish.queue.as_ref()) {
            Ok(item) => lanes.add(place, item),
            Err(reason) => ledger.settle([(place, LineOutcome::Refused(reason))]),
        }
    }
}

fn show(context: &Context, summary: &Summary) -> command::Outcome {
    context.output.show(summary, |out| {
        let lines = if summary.put == 1 { "line" } else { "lines" };
        write!(out, "{STRONG}{}{STRONG:#} {lines} put", summary.put)?;
        if summary.skipped > 0 {
            write!(out, ", {} answered before", summary.skipped)?;
        }
        if summary.refused > 0 {
            write!(out, ", {BAD}{} refused{BAD:#}", summary.refused)?;
        }
        writeln!(out)
    })?;
    Ok(if summary.refused == 0 { Exit::Ok } else { Exit::Refused })
}

//! `dwell engine dump`

use std::io::{self, BufWriter, IsTerminal as _, Write as _};

use clap::{Args, ValueEnum};
use dwell_engine::offline::{self, Filter};
use dwell_model::{QueueName, StateKind};
use dwell_time::{Clock as _, SystemClock};
use dwell_wire::Message;
use serde_json::Value;

use super::bar::Bar;
use super::{Context, DirArgs, Outcome, bytes, looked_at};
use crate::exit::Exit;

/// Print all messages, a JSON object each
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell engine dump dwell-data > messages.jsonl
  dwell engine dump dwell-data --queue orders --state dead
  dwell engine dump dwell-data --puts | dwell put --from -

Lines are those of `dwell list --json`; with --puts those that `dwell put
--from` takes: with queue, body, due, key, headers, priority, expiry and limits,
without what has happened to a message. It gets another id there, and what was
leased or dead is scheduled again. Bodies that are no UTF-8 are base64. Nothing
is changed.")]
pub(crate) struct Dump {
    #[command(flatten)]
    dir: DirArgs,
    /// Messages of this queue
    #[arg(long)]
    queue: Option<QueueName>,
    /// Messages in this state
    #[arg(long, value_enum)]
    state: Option<DumpState>,
    /// Print the input of `dwell put --from`
    #[arg(long)]
    puts: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DumpState {
    Scheduled,
    Ready,
    Leased,
    Dead,
}

impl From<DumpState> for StateKind {
    fn from(state: DumpState) -> StateKind {
        match state {
            DumpState::Scheduled => StateKind::Scheduled,
            DumpState::Ready => StateKind::Ready,
            DumpState::Leased => StateKind::Leased,
            DumpState::Dead => StateKind::Dead,
        }
    }
}

/// The fields of a message that a put has.
const OF_A_PUT: [&str; 10] =
    ["queue", "body", "body_base64", "due", "key", "headers", "priority", "expires", "lease", "max_attempts"];

impl Dump {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let disk = looked_at();
        let total = bytes(&disk, &self.dir.dir, |kind| u64::from(matches!(kind, "journal" | "tables")));
        let is_shown = context.output.has_progress() && !io::stdout().is_terminal();
        let bar = Bar::over_reads(&disk, total, is_shown);
        let filter = Filter { queue: self.queue, state: self.state.map(StateKind::from) };
        let mut out = BufWriter::with_capacity(256 * 1024, io::stdout().lock());
        let mut failed: Option<io::Error> = None;
        let now = SystemClock::new().now();
        let shown = offline::dump(&disk, &self.dir.dir, now, &filter, &mut |message| {
            let written = line(&Message::of(message, true), self.puts).and_then(|line| out.write_all(&line));
            failed = written.err();
            failed.is_none()
        });
        drop(bar);
        let shown = shown?;
        match failed {
            Some(error) => Err(error.into()),
            None => {
                out.flush()?;
                Ok(if shown == 0 { Exit::Nothing } else { Exit::Ok })
            }
        }
    }
}

fn line(message: &Message<'_>, as_put: bool) -> io::Result<Vec<u8>> {
    let mut line = if as_put {
        let mut value = serde_json::to_value(message)?;
        if let Value::Object(fields) = &mut value {
            fields.retain(|name, _| OF_A_PUT.contains(&name.as_str()));
        }
        serde_json::to_vec(&value)?
    } else {
        serde_json::to_vec(message)?
    };
    line.push(b'\n');
    Ok(line)
}

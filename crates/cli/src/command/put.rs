//! `dwell put`

use std::io::{self, Read as _};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dwell_model::{AttemptLimit, Headers, IdempotencyKey, Key, QueueName, Timestamp};
use dwell_store::OnConflict;
use dwell_wire::{PutAnswer, PutOutcome};

use super::{Context, Outcome};
use crate::args::{WhenArgs, attempts, duration_ms};
use crate::exit::{Exit, Failure, Own};
use crate::human::{FAINT, STRONG, instant};
use crate::load;

/// Put a message, or a whole file of them
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell put orders 'close order 7' --delay 30m
  dwell put orders - --due 2026-11-21T18:00:00Z < body
  dwell put orders x --key order-7 --on-conflict replace
  dwell put --from messages.jsonl --answers answers.jsonl

The body `-` is read from standard input. With `--on-conflict replace` the last
message of a key counts: a debounce.

A file has one JSON object a line:
  {\"queue\":\"orders\",\"body\":\"close order 7\",\"delay\":\"30m\",\"key\":\"order-7\"}
with body or body_base64, one of delay, delay_ms, due and level, and key,
on_conflict, headers, priority, expires, lease, max_attempts and
idempotency_key as the HTTP interface has them. A line without one gets one,
made of the file's digest up to it and its number: the same file put again
within 10 minutes (the queue's idempotency_ttl) puts nothing twice, so a run
that broke off is simply run again. It counts as put what was put then, too:
the server's answer to a repeat is the first one. With --answers, lines that
the answers file has are not sent again, however long ago that was, and count
as skipped.")]
pub(crate) struct Put {
    /// The queue; with --from, the queue of lines that name none
    #[arg(required_unless_present = "from")]
    queue: Option<QueueName>,
    /// The body; `-` reads it from standard input
    #[arg(required_unless_present = "from", conflicts_with = "from", allow_hyphen_values = true)]
    body: Option<String>,
    #[command(flatten)]
    when: WhenArgs,
    #[command(flatten)]
    options: MessageOptions,
    #[command(flatten)]
    file: FileOptions,
}

/// The attributes of one message.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of one message")]
struct MessageOptions {
    /// The caller's own name for it, unique among the queue's live messages
    #[arg(long)]
    key: Option<Key>,
    /// What to do when a live message has the key
    #[arg(long, value_enum, requires = "key", value_name = "WHAT")]
    on_conflict: Option<Conflict>,
    /// A header; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Its content type: the header content-type
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// The priority: smaller first, among due messages
    #[arg(long)]
    priority: Option<u32>,
    /// The instant after due past which it is dead if it was not taken
    #[arg(long, value_name = "INSTANT")]
    expires: Option<Timestamp>,
    /// Its own lease, over the queue's
    #[arg(long, value_parser = duration_ms, allow_hyphen_values = true, value_name = "DURATION")]
    lease: Option<u64>,
    /// Its own limit of attempts: a number, or `unlimited`
    #[arg(long, value_parser = attempts, value_name = "COUNT")]
    max_attempts: Option<AttemptLimit>,
    /// The same idempotency key gives the same answer and puts nothing, for the queue's idempotency_ttl
    #[arg(long)]
    idempotency_key: Option<IdempotencyKey>,
}

/// Options for a file.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of a file")]
struct FileOptions {
    /// A file of messages, one JSON object per line; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "delay", "due", "level", "key", "headers", "content_type", "priority", "expires", "lease",
        "max_attempts", "idempotency_key",
    ])]
    from: Option<PathBuf>,
    /// Write the result of each line; a later run continues after the last line in it
    #[arg(long, requires = "from", value_name = "FILE")]
    answers: Option<PathBuf>,
    /// Write refused lines' numbers and reasons here, not to standard error
    #[arg(long, requires = "from", value_name = "FILE")]
    rejects: Option<PathBuf>,
    /// Put the same file again, as a run with this name: its idempotency keys differ
    #[arg(long, requires = "from", value_name = "NAME", default_value = "")]
    run: String,
    /// How long to retry while the server does not answer or refuses for now
    #[arg(long, requires = "from", value_parser = duration_ms, allow_hyphen_values = true, default_value = "2m", value_name = "DURATION")]
    retry_for: u64,
    /// The number of concurrent requests, 1 to 64; lines of one queue are never put concurrently
    #[arg(long, requires = "from", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64), value_name = "COUNT")]
    in_flight: u16,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Conflict {
    /// Refuse: the standing message stays as it is
    Reject,
    /// The new message counts, the old one is removed
    Replace,
    /// The standing message stays; the earlier instant counts
    Keep,
}

impl Put {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match &self.file.from {
            Some(from) => load::run(
                context,
                &load::LoadOptions {
                    from: from.clone(),
                    queue: self.queue.clone(),
                    answers: self.file.answers.clone(),
                    rejects: self.file.rejects.clone(),
                    run: self.file.run.clone(),
                    retry_for_ms: self.file.retry_for,
                    in_flight: self.file.in_flight.into(),
                },
            ),
            None => self.one(context),
        }
    }

    fn one(self, context: &Context) -> Outcome {
        let (Some(queue), Some(body)) = (self.queue.clone(), self.body.clone()) else {
            return Err(Failure::usage("say QUEUE and BODY, or --from FILE"));
        };
        let body = if body == "-" { standard_input()? } else { body.into_bytes() };
        let options = self.options;
        let headers = headers(&options.headers, options.content_type.as_deref())?;
        let mut put = dwell_store::Put::new(queue, body);
        put.when = self.when.when();
        put.key = options.key;
        put.on_conflict = match options.on_conflict {
            None | Some(Conflict::Reject) => OnConflict::Reject,
            Some(Conflict::Replace) => OnConflict::Replace,
            Some(Conflict::Keep) => OnConflict::Keep,
        };
        put.headers = headers;
        put.priority = options.priority.unwrap_or(put.priority);
        put.expires = options.expires;
        put.lease_ms = options.lease;
        put.max_attempts = options.max_attempts;
        put.idempotency_key = options.idempotency_key;
        let answer = PutAnswer::from(context.client()?.put_one(put)?);
        context.output.show(&answer, |out| {
            writeln!(
                out,
                "{STRONG}{}{STRONG:#}  {}, due {}  {FAINT}number {}{FAINT:#}",
                answer.id,
                match answer.outcome {
                    PutOutcome::Created => "created",
                    PutOutcome::Replaced => "created in place of another",
                    PutOutcome::Kept => "kept as it stood",
                },
                instant(answer.due),
                answer.number
            )
        })?;
        Ok(Exit::Ok)
    }
}

fn standard_input() -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    io::stdin()
        .read_to_end(&mut body)
        .map_err(|error| Failure::file(Own::Input.code(), "standard input", &error))?;
    Ok(body)
}

fn headers(lines: &[String], content_type: Option<&str>) -> Result<Headers, Failure> {
    let mut pairs = Vec::new();
    for line in lines {
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| Failure::usage(format!("'{line}' is no header: write 'name: value'")))?;
        pairs.push((name.trim(), value.trim()));
    }
    pairs.extend(content_type.map(|value| ("content-type", value)));
    Ok(Headers::new(pairs)?)
}

//! `dwell redisson move`

use clap::Args;
use dwell_redis::Link;
use dwell_redisson::{Event, Keys, Mover, MoverOptions};
use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::super::serve::signals::Signals;
use super::{Context, Java, Outcome, QueuesArgs, runtime};
use crate::args::duration_ms;
use crate::exit::{Exit, Failure};
use crate::human::{BAD, FAINT, GOOD, STRONG, WAITING};
use crate::output::Output;

/// Move due elements to their destination, whether or not a Java client is alive
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell redisson move --redis redis://10.0.0.5 --queue orders --queue mails
  dwell redisson move --queue orders --once       what is due now, then end
  dwell redisson move --queue orders --java new   Java's movers are of 3.21.1 and later, and
                                                  some producers are older: rewrite what those offer

Several copies may run beside each other and beside Java's own. SIGTERM or SIGINT (Ctrl-C) ends it; nothing
is lost by ending it at any moment.")]
pub(crate) struct Move {
    #[command(flatten)]
    queues: QueuesArgs,
    /// What the Java clients read: elements in the other layout are rewritten before they are due
    #[arg(long, value_enum, default_value_t = Java::Any)]
    java: Java,
    /// The interval of checks without a notification
    #[arg(long, value_parser = duration_ms, default_value = "1s", value_name = "DURATION")]
    sweep: u64,
    /// The maximum number of elements that one script moves
    #[arg(long, default_value_t = MoverOptions::default().batch_max, value_name = "COUNT")]
    batch: usize,
    /// The number of failed attempts of dwell's own consumers after which a payload is dead; 0 for no limit
    #[arg(long, default_value_t = MoverOptions::default().max_attempts, value_name = "COUNT")]
    max_attempts: u32,
    /// Move what is due now, then end
    #[arg(long)]
    once: bool,
}

/// A line of output.
#[derive(Serialize)]
struct MoverLine<'a> {
    event: &'static str,
    queue: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    moved: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    set_aside: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rewritten: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rounded: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reaped: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Failure>,
}

impl Move {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let keys = self.queues.keys()?;
        let runtime = runtime()?;
        runtime.block_on(async {
            let link = self.queues.link().await?;
            if self.once {
                self.pass(context, &link, keys).await
            } else {
                self.stand(context, &link, keys).await
            }
        })
    }

    fn options(&self) -> MoverOptions {
        MoverOptions {
            sweep_ms: self.sweep,
            batch_max: self.batch,
            layout: self.java.layout(),
            max_attempts: self.max_attempts,
            ..MoverOptions::default()
        }
    }

    async fn pass(&self, context: &Context, link: &Link, queues: Vec<Keys>) -> Outcome {
        for keys in queues {
            let name = keys.name().to_owned();
            let (moved, set_aside) = Mover::new(link.clone(), keys, self.options()).pass().await?;
            let mut told = told(&name, "moved");
            told.moved = Some(moved);
            told.set_aside = Some(set_aside);
            context.output.show(&told, |out| writeln!(out, "{STRONG}{name}{STRONG:#}  {}", words(&told)))?;
        }
        Ok(Exit::Ok)
    }

    /// Runs a mover per queue until a signal arrives.
    async fn stand(&self, context: &Context, link: &Link, queues: Vec<Keys>) -> Outcome {
        let signals = Signals::listen().map_err(|error| Failure::new(Exit::CannotStart, "signals", error))?;
        let (tell, mut events) = mpsc::channel(1_000);
        // If the output is not read, moving goes on: a line is lost rather than a message late.
        let movers = Movers::start(link, queues, &self.options(), move |queue, event| {
            drop(tell.try_send((queue, event)))
        });
        let mut first = std::pin::pin!(signals.first());
        loop {
            tokio::select! {
                _ = &mut first => break,
                event = events.recv() => match event {
                    Some((queue, event)) => show(&context.output, &queue, event)?,
                    None => break,
                },
            }
        }
        movers.stop().await?;
        while let Some((queue, event)) = events.recv().await {
            show(&context.output, &queue, event)?;
        }
        Ok(Exit::Ok)
    }
}

/// Running movers, one per queue.
pub(crate) struct Movers {
    stop: watch::Sender<()>,
    running: Vec<JoinHandle<()>>,
}

impl Movers {
    /// Starts them; their reports contain the queue's name.
    pub(crate) fn start(
        link: &Link,
        queues: Vec<Keys>,
        options: &MoverOptions,
        tell: impl Fn(String, Event) + Clone + Send + 'static,
    ) -> Movers {
        let (stop, stopped) = watch::channel(());
        let start = |keys: Keys| {
            let (name, tell, mut stopped) = (keys.name().to_owned(), tell.clone(), stopped.clone());
            let mover = Mover::new(link.clone(), keys, options.clone());
            let report = move |event| tell(name.clone(), event);
            tokio::spawn(mover.run(async move { drop(stopped.changed().await) }, report))
        };
        Movers { stop, running: queues.into_iter().map(start).collect() }
    }

    /// Stops them; a script in progress is waited for.
    pub(crate) async fn stop(self) -> Result<(), Failure> {
        drop(self.stop);
        for mover in self.running {
            mover.await.map_err(|error| Failure::new(Exit::Refused, "internal", error))?;
        }
        Ok(())
    }
}

fn told<'a>(queue: &'a str, event: &'static str) -> MoverLine<'a> {
    MoverLine {
        event,
        queue,
        moved: None,
        set_aside: None,
        rewritten: None,
        rounded: None,
        reaped: None,
        error: None,
    }
}

fn show(output: &Output, queue: &str, event: Event) -> Result<(), Failure> {
    let (mut line, style) = match &event {
        Event::Listening => (told(queue, "listening"), FAINT),
        Event::Moved(step) if step.set_aside > 0 => (told(queue, "moved"), WAITING),
        Event::Moved(_) => (told(queue, "moved"), GOOD),
        Event::Mended(_) => (told(queue, "mended"), WAITING),
        Event::Reaped(_) => (told(queue, "reaped"), WAITING),
        Event::Failure(_) => (told(queue, "trouble"), BAD),
        _ => return Ok(()),
    };
    match event {
        Event::Moved(step) => {
            line.moved = Some(step.moved);
            line.set_aside = Some(step.set_aside).filter(|count| *count > 0);
        }
        Event::Mended(mended) => {
            line.set_aside = Some(mended.set_aside).filter(|count| *count > 0);
            line.rewritten = Some(mended.rewritten).filter(|count| *count > 0);
            line.rounded = Some(mended.rounded).filter(|count| *count > 0);
        }
        Event::Reaped(count) => line.reaped = Some(count),
        Event::Failure(error) => line.error = Some(error.into()),
        _ => {}
    }
    output.show(&line, |out| writeln!(out, "{STRONG}{queue}{STRONG:#}  {style}{}{style:#}", words(&line)))
}

/// A line for people.
fn words(told: &MoverLine<'_>) -> String {
    let counts = [
        (told.moved, "moved"),
        (told.set_aside, "set aside"),
        (told.rewritten, "rewritten"),
        (told.rounded, "rounded"),
        (told.reaped, "leases ended"),
    ];
    let counts: Vec<_> =
        counts.iter().filter_map(|(count, what)| Some(format!("{} {what}", (*count)?))).collect();
    match &told.error {
        Some(error) => format!("{}: {}", error.code, error.detail),
        None if counts.is_empty() => told.event.to_owned(),
        None => counts.join(", "),
    }
}

//! The audit: checks every known job, and the number of jobs, after a restart and before any other connection.

use std::io;
use std::net::SocketAddr;

use super::BeanstalkdShared;
use super::ledger::{LedgerJob, Way};
use super::wire::{BeanstalkdReply, BeanstalkdWire};
use super::worker::TUBES;

/// The number of jobs that are requested at a time.
const AT_ONCE: usize = 64;

/// Requests every job and compares it with the ledger. Jobs that were found gone are requested again only in the `last` audit.
///
/// # Errors
/// If the server does not answer.
pub(super) fn audit(shared: &BeanstalkdShared, address: SocketAddr, last: bool) -> io::Result<()> {
    let mut wire = BeanstalkdWire::connect(address)?;
    let mut ledger = shared.ledger();
    let ids: Vec<u64> =
        ledger.jobs.iter().filter(|(_, job)| last || job.ways != [Way::Gone]).map(|(id, _)| *id).collect();
    for ids in ids.chunks(AT_ONCE) {
        let before_ms = shared.now_ms();
        let commands: String = ids.iter().map(|id| format!("stats-job {id}\r\npeek {id}\r\n")).collect();
        wire.send(commands.as_bytes())?;
        for id in ids {
            let (stats, peek) = (wire.reply()?, wire.reply()?);
            let seen = AuditedJob { stats, peek, before_ms, after_ms: shared.now_ms() };
            let Some(job) = ledger.jobs.get_mut(id) else { continue };
            let ways: Vec<Way> = job.ways.iter().copied().filter(|way| seen.is(job, *way)).collect();
            if ways.is_empty() {
                let text = format!("job {id} of {} is {seen:?}, and may be {:?}", job.put.tube, job.ways);
                ledger.jobs.remove(id);
                ledger.accuse(text);
            } else {
                job.ways = ways;
            }
        }
    }
    let known = ledger.jobs.values().filter(|job| job.ways != [Way::Gone]).count() as i64;
    let there = count(&mut wire)?;
    let most = known + ledger.pending.len() as i64;
    if !(known..=most).contains(&there) {
        ledger.accuse(format!("there are {there} jobs, and may be {known} to {most}"));
    }
    Ok(())
}

/// The observed state of a job, and when it was observed.
#[derive(Debug)]
struct AuditedJob {
    stats: BeanstalkdReply,
    peek: BeanstalkdReply,
    before_ms: i64,
    after_ms: i64,
}

impl AuditedJob {
    fn is(&self, job: &LedgerJob, way: Way) -> bool {
        let (is_there, priority) = match way {
            Way::Gone => return self.stats.word() == "NOT_FOUND" && self.peek.word() == "NOT_FOUND",
            Way::Buried { priority } => (self.stats.field("state") == Some("buried"), priority),
            Way::Waits { priority, from_ms } => (self.waits(from_ms), priority),
        };
        is_there
            && self.peek.body == job.put.body
            && self.stats.field("tube") == Some(job.put.tube)
            && self.stats.number("pri") == Some(priority.into())
            && self.stats.number("delay") == Some(job.put.delay_s.into())
            && self.stats.number("ttr") == Some(job.put.ttr_s.into())
    }

    /// Whether the job becomes ready at some instant between these two.
    fn waits(&self, (from_ms, to_ms): (i64, i64)) -> bool {
        match self.stats.field("state") {
            Some("ready") => from_ms <= self.after_ms,
            Some("delayed") => {
                let left = self.stats.number("time-left").unwrap_or(-1);
                let least = (from_ms - self.after_ms).max(0) / 1_000;
                to_ms > self.before_ms
                    && (least..=(to_ms.saturating_sub(self.before_ms)) / 1_000).contains(&left)
            }
            _ => false,
        }
    }
}

/// The number of jobs, in all tubes and states.
fn count(wire: &mut BeanstalkdWire) -> io::Result<i64> {
    let mut count = 0;
    for tube in TUBES {
        let stats = wire.ask(&format!("stats-tube {tube}"))?;
        for state in ["ready", "delayed", "reserved", "buried"] {
            count += stats.number(&format!("current-jobs-{state}")).unwrap_or(0);
        }
    }
    Ok(count)
}

//! The ledger: the answers so far, and the states of jobs that they allow.
//!
//! Before a command is sent, its possible effect is entered beside the current state; its reply removes one of the two.
//! So a command without a reply needs no special handling: both remain, until an audit or a reserve decides.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A possible state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Gone,
    /// Ready at some instant between these two, in milliseconds of the wall clock.
    Waits {
        priority: u32,
        from_ms: (i64, i64),
    },
    Buried {
        priority: u32,
    },
}

/// A job as it was put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PutJob {
    pub(super) tube: &'static str,
    pub(super) priority: u32,
    pub(super) delay_s: u32,
    pub(super) ttr_s: u32,
    pub(super) body: Vec<u8>,
    /// When it was sent.
    pub(super) sent_ms: i64,
}

/// A job whose id is known.
#[derive(Debug)]
pub(super) struct LedgerJob {
    pub(super) put: PutJob,
    pub(super) ways: Vec<Way>,
}

/// Counters of the run.
#[derive(Debug, Default)]
pub(super) struct JobCounts {
    pub(super) inserted: u64,
    pub(super) deleted: u64,
    /// Commands that never got a reply.
    pub(super) unknown: u64,
}

/// The ledger; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct JobLedger {
    pub(super) jobs: BTreeMap<u64, LedgerJob>,
    /// Puts without a reply so far, by their bodies, which are all distinct.
    pub(super) pending: HashMap<Vec<u8>, PutJob>,
    /// The ids of reserved jobs.
    held: BTreeSet<u64>,
    pub(super) counts: JobCounts,
    pub(super) violations: Vec<String>,
}

impl JobLedger {
    pub(super) fn accuse(&mut self, text: String) {
        self.violations.push(text);
    }

    /// The server was killed: no job is reserved any more.
    pub(super) fn killed(&mut self) {
        self.held.clear();
    }

    /// Records a put before it is sent.
    pub(super) fn put(&mut self, put: PutJob) {
        self.pending.insert(put.body.clone(), put);
    }

    /// Records that a put was answered with this id.
    pub(super) fn inserted(&mut self, id: u64, body: &[u8], now_ms: i64) {
        self.counts.inserted += 1;
        if let Some(put) = self.pending.remove(body) {
            self.found(id, put, now_ms);
        } else if self.jobs.get(&id).is_none_or(|job| job.put.body != body) {
            self.accuse(format!(
                "INSERTED {id}: another job was seen under this id, or this job under another"
            ));
        }
    }

    /// Records that a put without a reply took effect, before now.
    fn found(&mut self, id: u64, put: PutJob, now_ms: i64) {
        let delay_ms = i64::from(put.delay_s) * 1_000;
        let from_ms = (put.sent_ms + delay_ms, now_ms + delay_ms);
        let ways = vec![Way::Waits { priority: put.priority, from_ms }];
        if let Some(other) = self.jobs.insert(id, LedgerJob { put, ways }) {
            self.accuse(format!("id {id} was given twice, before to {:?}", other.put));
        }
    }

    /// Records that a job was reserved between these two instants.
    pub(super) fn reserved(&mut self, id: u64, body: &[u8], now_ms: i64) {
        if let Some(put) = self.pending.remove(body) {
            self.found(id, put, now_ms);
        }
        if !self.held.insert(id) {
            self.accuse(format!("job {id} is reserved by two"));
        }
        let Some(job) = self.jobs.get_mut(&id) else {
            return self
                .accuse(format!("job {id} was reserved and never put: {}", String::from_utf8_lossy(body)));
        };
        let wrong = job.put.body != body;
        let before = job.ways.clone();
        job.ways.retain(|way| matches!(way, Way::Waits { from_ms, .. } if from_ms.0 <= now_ms));
        if wrong || job.ways.is_empty() {
            self.accuse(format!(
                "job {id} was reserved at {now_ms}, its body right: {}, being {before:?}",
                !wrong
            ));
        }
    }

    /// Records a possible new state of a job, before the command is sent.
    pub(super) fn may_become(&mut self, id: u64, way: Way) {
        self.held.remove(&id);
        if let Some(job) = self.jobs.get_mut(&id) {
            job.ways.push(way);
        }
    }

    /// Records the reply to a command: the job has become what it `might`, which is now known `exactly`. States entered
    /// since belong to another worker that reserved the job afterwards.
    pub(super) fn became(&mut self, id: u64, might: Way, exactly: Way) {
        if exactly == Way::Gone {
            self.counts.deleted += 1;
        }
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if let Some(place) = job.ways.iter().rposition(|way| *way == might) {
            job.ways.drain(..place);
            job.ways[0] = exactly;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(body: &str) -> PutJob {
        PutJob { tube: "t", priority: 1, delay_s: 2, ttr_s: 3, body: body.into(), sent_ms: 1_000 }
    }

    fn ledger() -> JobLedger {
        let mut ledger = JobLedger::default();
        ledger.put(put("a"));
        ledger.inserted(7, b"a", 1_010);
        ledger
    }

    fn accused(mut ledger: JobLedger, deed: impl FnOnce(&mut JobLedger)) -> bool {
        assert!(ledger.violations.is_empty());
        deed(&mut ledger);
        !ledger.violations.is_empty()
    }

    #[test]
    fn what_is_early_twice_foreign_or_gone_is_found() {
        assert!(accused(ledger(), |l| l.reserved(7, b"a", 2_999)), "early");
        assert!(!accused(ledger(), |l| l.reserved(7, b"a", 3_000)));
        assert!(accused(ledger(), |l| l.reserved(7, b"b", 3_000)), "another body");
        assert!(accused(ledger(), |l| l.reserved(8, b"a", 3_000)), "never put");
        assert!(accused(ledger(), |l| (0..2).for_each(|_| l.reserved(7, b"a", 3_000))), "two holders");
        let gone = |l: &mut JobLedger| {
            l.may_become(7, Way::Gone);
            l.became(7, Way::Gone, Way::Gone);
            l.reserved(7, b"a", 3_000);
        };
        assert!(accused(ledger(), gone), "resurrected");
        let buried = |l: &mut JobLedger| {
            l.may_become(7, Way::Buried { priority: 1 });
            l.became(7, Way::Buried { priority: 1 }, Way::Buried { priority: 1 });
            l.reserved(7, b"a", 3_000);
        };
        assert!(accused(ledger(), buried), "buried");
        let again = |l: &mut JobLedger| {
            l.put(put("c"));
            l.inserted(7, b"c", 1_020);
        };
        assert!(accused(ledger(), again), "an id twice");
    }

    #[test]
    fn a_reply_that_is_heard_late_does_not_undo_what_others_did_since() {
        let mut l = ledger();
        let released = |to| Way::Waits { priority: 5, from_ms: (3_000, to) };
        l.reserved(7, b"a", 3_000);
        l.may_become(7, released(i64::MAX));
        l.reserved(7, b"a", 3_100);
        l.may_become(7, Way::Gone);
        l.became(7, released(i64::MAX), released(3_100));
        assert_eq!(l.jobs[&7].ways, [released(3_100), Way::Gone]);
        l.became(7, Way::Gone, Way::Gone);
        assert_eq!(l.jobs[&7].ways, [Way::Gone]);
        assert_eq!(l.violations, [""; 0]);
    }

    #[test]
    fn what_had_no_reply_may_have_happened_or_not() {
        let unknown = |l: &mut JobLedger| {
            l.reserved(7, b"a", 3_000);
            l.may_become(7, Way::Gone);
            l.killed();
            l.reserved(7, b"a", 3_100);
            l.put(put("lost"));
            l.killed();
            l.reserved(9, b"lost", 4_000);
        };
        assert!(!accused(ledger(), unknown));
    }
}

//! Tests of the ledger: correct histories pass, and violations are reported.

use super::*;

/// A ledger of ten lines, and the first of its messages as a server would show it.
struct Trial {
    ledger: LoadLedger,
    line: InputLine,
    queue: String,
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms).unwrap()
}

fn trial() -> Trial {
    let line = InputLine::make(1, 0);
    let queue = line.queue_name();
    let mut ledger = LoadLedger::new(1, 1);
    ledger.answered(0, 77, 10);
    Trial { ledger, line, queue }
}

impl Trial {
    fn seen(&self) -> SeenMessage<'_> {
        let created = at(1_000);
        let due = created.after(self.line.delay_ms).unwrap();
        let key = self.line.key.as_deref();
        SeenMessage { id: 77, queue: &self.queue, key, body: &self.line.body, due, created, attempt: 1 }
    }

    /// Delivers it `late_ms` after its instant, with a lease of one second.
    fn taken(mut self, late_ms: i64, attempt: u32) -> Trial {
        let mut ledger = std::mem::replace(&mut self.ledger, LoadLedger::new(0, 0));
        let seen = SeenMessage { attempt, ..self.seen() };
        let taken_at = at(seen.due.as_ms() + late_ms);
        let taken = TakenMessage { begun_ms: 20, taken_at, lease_until: taken_at.after(1_000).unwrap() };
        ledger.delivered(&seen, taken);
        Trial { ledger, ..self }
    }

    fn acked(mut self) -> Trial {
        self.ledger.acked(0);
        self
    }

    fn killed(mut self) -> Trial {
        self.ledger.killed();
        self
    }

    fn found(mut self) -> Trial {
        let mut ledger = std::mem::replace(&mut self.ledger, LoadLedger::new(0, 0));
        ledger.found(&self.seen());
        Trial { ledger, ..self }
    }

    #[track_caller]
    fn ends(mut self, complaint: Option<&str>) -> LoadCounts {
        self.ledger.finish();
        match complaint {
            None => assert!(self.ledger.violations().is_empty(), "{:?}", self.ledger.violations()),
            Some(complaint) => {
                let told = self.ledger.violations().iter().any(|told| told.contains(complaint));
                assert!(told, "{:?}", self.ledger.violations());
            }
        }
        self.ledger.counts()
    }
}

#[test]
fn honest_lines_pass() {
    trial().found().ends(None);
    trial().taken(0, 1).acked().ends(None);
}

#[test]
fn a_line_that_is_nowhere_is_lost() {
    trial().ends(Some("is lost"));
    trial().taken(0, 1).ends(Some("is lost"));
}

#[test]
fn a_line_in_two_places_is_told() {
    trial().found().found().ends(Some("there twice"));
    trial().taken(0, 1).acked().found().ends(Some("still there"));
    trial().taken(0, 1).acked().taken(5, 2).ends(Some("after its ack"));
    let mut twice = trial();
    twice.ledger.identify(0, 78);
    twice.found().ends(Some("stored twice"));
}

#[test]
fn early_and_two_receipts_are_told() {
    trial().taken(-1, 1).acked().ends(Some("early"));
    trial().taken(0, 1).taken(900, 2).acked().ends(Some("though it was held"));
}

#[test]
fn again_after_a_kill_is_counted_and_again_for_no_reason_is_told() {
    assert_eq!(trial().taken(0, 1).killed().taken(1_000, 2).acked().ends(None).redelivered, 1);
    assert_eq!(trial().taken(0, 1).taken(1_000, 2).acked().ends(None).lapsed, 1);
    trial().taken(0, 2).acked().ends(Some("never handed out"));
    let mut lost = trial().killed();
    let queue = lost.queue.clone();
    lost.ledger.lost_take([queue.as_str()].into_iter());
    assert_eq!(lost.taken(0, 2).acked().ends(None).redelivered, 1);
}

#[test]
fn other_bytes_and_another_instant_are_told() {
    let mut trial = self::trial();
    trial.line.body.push(b'!');
    trial.found().ends(Some("another body"));
    let mut trial = self::trial();
    trial.line.delay_ms += 1;
    trial.found().ends(Some("delay"));
}

//! Suspects: messages that may have killed their process run alone in their worker.
//!
//! A process that dies spends an attempt of every message that it held. A message whose lease has lapsed twice may be
//! the one that kills. It is run when its worker holds no other lease, so that the next death costs no other message an
//! attempt: others lose two attempts at most.

/// The number of lapsed leases that makes a message a suspect.
pub const LAPSES_OF_A_SUSPECT: u32 = 2;
/// How long a suspect waits until its worker holds no other lease, in milliseconds. Then it is released.
pub const PATIENCE_MS: u64 = 10_000;
/// The delay with which a suspect is released that could not run alone, and each that arrives meanwhile, in
/// milliseconds: many suspects stop a busy worker no more often than one.
pub const AGAIN_AFTER_MS: u64 = 60_000;

/// Whether a message with this many lapsed leases runs alone.
pub(crate) fn is_suspect(lapses: u32) -> bool {
    lapses >= LAPSES_OF_A_SUSPECT
}

/// What all lanes of a worker hold, and the suspect among it. It reads no clock: `now_ms` is monotonic.
#[derive(Debug, Default)]
pub(crate) struct Solo {
    /// Held leases, without the suspect's.
    held: usize,
    suspect: Option<Suspect>,
    /// Before this time no suspect waits, since one has waited in vain.
    not_before_ms: u64,
}

#[derive(Clone, Copy, Debug)]
enum Suspect {
    Waits { until_ms: u64 },
    Runs,
}

/// What a suspect does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Begins: no other lease is held.
    Run,
    /// Waits for the other leases to end, until this time at most.
    Wait(u64),
    /// Is released: the other leases have not ended in time.
    GiveBack,
}

impl Solo {
    /// Whether lanes may take. Waiting takes are dropped when this turns false.
    pub(crate) fn may_take(&self) -> bool {
        self.suspect.is_none()
    }

    /// Records that a lane was handed messages that are not suspects. False while a suspect runs: then they are given
    /// back at once.
    pub(crate) fn admit(&mut self, messages: usize) -> bool {
        if matches!(self.suspect, Some(Suspect::Runs)) {
            return false;
        }
        self.held += messages;
        true
    }

    /// Records that a message is given back that was not admitted: its lease counts until that is settled.
    pub(crate) fn goes_back(&mut self) {
        self.held += 1;
    }

    /// Settles this many of the messages that are held.
    pub(crate) fn settled(&mut self, messages: usize) {
        debug_assert!(self.held >= messages, "more is settled than was held");
        self.held = self.held.saturating_sub(messages);
    }

    /// Records that a lane was handed a suspect.
    ///
    /// # Errors
    /// It is released, for this many milliseconds: there is one already, or one has waited in vain.
    pub(crate) fn ask(&mut self, now_ms: u64) -> Result<(), u64> {
        if self.suspect.is_some() {
            return Err(0);
        }
        if now_ms < self.not_before_ms && self.held > 0 {
            return Err(self.not_before_ms - now_ms);
        }
        self.suspect = Some(Suspect::Waits { until_ms: now_ms.saturating_add(PATIENCE_MS) });
        Ok(())
    }

    /// The next step of the suspect that waits.
    pub(crate) fn step(&mut self, now_ms: u64) -> Step {
        match self.suspect {
            Some(Suspect::Runs) => Step::Run,
            Some(Suspect::Waits { .. }) if self.held == 0 => {
                self.suspect = Some(Suspect::Runs);
                Step::Run
            }
            Some(Suspect::Waits { until_ms }) if now_ms < until_ms => Step::Wait(until_ms),
            Some(Suspect::Waits { .. }) | None => {
                self.suspect = None;
                self.not_before_ms = now_ms.saturating_add(AGAIN_AFTER_MS);
                Step::GiveBack
            }
        }
    }

    /// Records that the suspect is settled, or is not run after all.
    pub(crate) fn ended(&mut self) {
        self.suspect = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lapses_make_a_suspect() {
        assert_eq!([0, 1, 2, 3].map(is_suspect), [false, false, true, true]);
    }

    #[test]
    fn a_suspect_waits_for_silence_and_runs_alone() {
        let mut solo = Solo::default();
        assert!(solo.admit(2));
        assert_eq!(solo.ask(0), Ok(()));
        assert!(!solo.may_take());
        assert_eq!(solo.step(1), Step::Wait(PATIENCE_MS));
        // Another lane's take was answered meanwhile: its message is run before the suspect is.
        assert!(solo.admit(1));
        solo.settled(2);
        assert_eq!(solo.step(2), Step::Wait(PATIENCE_MS));
        solo.settled(1);
        assert_eq!(solo.step(3), Step::Run);
        assert!(!solo.may_take());
        assert!(!solo.admit(1), "what comes now goes back");
        solo.ended();
        assert!(solo.may_take() && solo.admit(1));
    }

    #[test]
    fn one_suspect_at_a_time_is_held() {
        let mut solo = Solo::default();
        assert_eq!(solo.ask(0), Ok(()));
        assert_eq!(solo.ask(0), Err(0));
        assert_eq!(solo.step(0), Step::Run);
        assert_eq!(solo.ask(0), Err(0));
        solo.ended();
        assert_eq!(solo.ask(0), Ok(()));
    }

    #[test]
    fn a_worker_that_never_falls_silent_gives_the_suspect_back() {
        let mut solo = Solo::default();
        solo.admit(1);
        assert_eq!(solo.ask(100), Ok(()));
        assert_eq!(solo.step(100 + PATIENCE_MS - 1), Step::Wait(100 + PATIENCE_MS));
        assert_eq!(solo.step(100 + PATIENCE_MS), Step::GiveBack);
        assert!(solo.may_take(), "the lanes go on");
        // Others that arrive with it would stop the worker for ten seconds each.
        let again_ms = 100 + PATIENCE_MS + AGAIN_AFTER_MS;
        assert_eq!(solo.ask(again_ms - 7), Err(7));
        assert!(solo.may_take());
        assert_eq!(solo.ask(again_ms), Ok(()));
        solo.ended();
        solo.settled(1);
        assert_eq!(solo.ask(again_ms - 7), Ok(()), "it is silent now");
    }

    /// The guarantee, simulated: a killer among 63 others, 64 at a time.
    #[test]
    fn a_killer_costs_bystanders_two_attempts_at_most() {
        const KILLER: usize = 40;
        let mut lapses = [0_u32; 64];
        let mut is_done = [false; 64];
        let mut deaths = 0;
        while !is_done.iter().all(|done| *done) {
            assert!(deaths <= 16, "the killer is dead after 16 attempts");
            let mut solo = Solo::default();
            // A batch: messages that are not suspects run at once, one suspect is kept, the others are given back.
            let waiting: Vec<usize> = (0..64).filter(|message| !is_done[*message]).collect();
            let (suspects, others): (Vec<usize>, Vec<usize>) =
                waiting.into_iter().partition(|message| is_suspect(lapses[*message]));
            assert!(solo.admit(others.len()));
            let suspect = suspects.into_iter().find(|_| solo.ask(0).is_ok());
            let held: Vec<usize> = others.iter().copied().chain(suspect).collect();
            if others.contains(&KILLER) {
                held.iter().for_each(|message| lapses[*message] += 1);
                deaths += 1;
                continue;
            }
            others.iter().for_each(|message| is_done[*message] = true);
            solo.settled(others.len());
            if let Some(suspect) = suspect {
                assert_eq!(solo.step(0), Step::Run);
                if suspect == KILLER {
                    lapses[KILLER] += 1;
                    deaths += 1;
                    is_done[KILLER] = lapses[KILLER] == 16;
                } else {
                    is_done[suspect] = true;
                }
            }
        }
        assert_eq!(lapses[KILLER], 16);
        for (message, lapses) in lapses.iter().enumerate().filter(|(message, _)| *message != KILLER) {
            assert!(*lapses <= 2, "message {message} lost {lapses} attempts");
        }
    }
}

//! Runs: consecutive commands of one kind that have arrived and share one call to the store.

use std::collections::HashSet;

use super::Connection;
use crate::beanstalkd::command::{Command, PutJob, Settling};
use crate::beanstalkd::frame::Frame;

/// The maximum number of commands, and of body bytes, per call to the store.
const RUN: usize = 1_024;
const RUN_BYTES: usize = 4 * 1024 * 1024;

impl Connection {
    /// The next command if it has arrived and `fits`; otherwise it stays in place.
    fn next_if<T>(&mut self, fits: impl FnOnce(Command) -> Result<T, Command>) -> Option<T> {
        match self.ahead.take().or_else(|| self.parser.next(&mut self.bytes))? {
            Frame::Command(command) => {
                let counted = command.counted();
                match fits(command) {
                    Ok(fitting) => {
                        counted.into_iter().for_each(|counted| self.session.shared.counters.count(counted));
                        return Some(fitting);
                    }
                    Err(command) => self.ahead = Some(Frame::Command(command)),
                }
            }
            other => self.ahead = Some(other),
        }
        None
    }

    fn run_len(&self) -> usize {
        RUN.min(self.session.shared.batch())
    }

    /// `first` and the puts after it.
    pub(super) fn puts(&mut self, first: PutJob) -> Vec<PutJob> {
        let mut bytes = first.body.len();
        let mut jobs = vec![first];
        while jobs.len() < self.run_len() && bytes < RUN_BYTES {
            let next = self.next_if(|command| match command {
                Command::Put(job) => Ok(job),
                other => Err(other),
            });
            let Some(job) = next else { break };
            bytes += job.body.len();
            jobs.push(job);
        }
        jobs
    }

    /// `first` and the deletes after it, up to the first job that is named twice.
    pub(super) fn deletes(&mut self, first: u64) -> Vec<u64> {
        let mut numbers = vec![first];
        let mut seen = HashSet::from([first]);
        while numbers.len() < self.run_len() {
            let next = self.next_if(|command| match command {
                Command::Delete(number) if seen.insert(number) => Ok(number),
                other => Err(other),
            });
            let Some(number) = next else { break };
            numbers.push(number);
        }
        numbers
    }

    /// `first` and the releases, buries and touches after it, up to the first job that is named twice.
    pub(super) fn settlements(&mut self, first: Settling) -> Vec<Settling> {
        let mut seen = HashSet::from([first.number]);
        let mut run = vec![first];
        while run.len() < self.run_len() {
            let next = self.next_if(|command| match command.settling() {
                Some(one) if seen.insert(one.number) => Ok(one),
                _ => Err(command),
            });
            let Some(one) = next else { break };
            run.push(one);
        }
        run
    }

    /// The number of reserves of the same kind, with the current one.
    pub(super) fn reserves(&mut self, timeout_s: Option<u32>) -> usize {
        let same = Command::Reserve { timeout_s };
        let mut count = 1;
        while count < self.run_len()
            && self.next_if(|command| if command == same { Ok(()) } else { Err(command) }).is_some()
        {
            count += 1;
        }
        count
    }
}

//! Sinks and schedules that a server runs itself.

use dwell_store::Result;
use dwell_wire::{
    Instants, Operation, Path, PutAnswer, Removed, Schedule, ScheduleDefined, ScheduleFields, Schedules,
    Sink, SinkTested, Sinks,
};
use serde::de::DeserializeOwned;

use crate::Client;
use crate::call::Call;

impl Client {
    /// Returns the sinks that the server runs, by name.
    ///
    /// # Errors
    /// As every call.
    pub async fn sinks(&self) -> Result<Vec<Sink>> {
        let sinks: Sinks = self.delivery(Call::read(Path::of(Operation::Sinks, &[]))).await?;
        Ok(sinks.sinks)
    }

    /// Makes the server connect to a sink's destination, without a message.
    ///
    /// # Errors
    /// `unknown_sink`, and as every call.
    pub async fn test_sink(&self, name: &str) -> Result<SinkTested> {
        self.delivery(Call::change(Path::of(Operation::TestSink, &[name])).harmless()).await
    }

    /// Pauses a sink until it is resumed, or the server is restarted.
    ///
    /// # Errors
    /// `unknown_sink`, and as every call.
    pub async fn pause_sink(&self, name: &str) -> Result<Sink> {
        self.delivery(Call::change(Path::of(Operation::PauseSink, &[name])).harmless()).await
    }

    /// Resumes a sink.
    ///
    /// # Errors
    /// `unknown_sink`, and as every call.
    pub async fn resume_sink(&self, name: &str) -> Result<Sink> {
        self.delivery(Call::change(Path::of(Operation::ResumeSink, &[name])).harmless()).await
    }

    /// Returns the schedules of the server's store, by name, and the reasons why others cannot be read.
    /// Bodies of more than 4 KiB are left out; each schedule by itself has its own.
    ///
    /// # Errors
    /// As every call.
    pub async fn schedules(&self) -> Result<Schedules<'static>> {
        self.delivery(Call::read(Path::of(Operation::Schedules, &[]))).await
    }

    /// Returns the schedule of this name.
    ///
    /// # Errors
    /// `unknown_schedule`, and as every call.
    pub async fn schedule(&self, name: &str) -> Result<Schedule<'static>> {
        self.delivery(Call::read(Path::of(Operation::Schedule, &[name]))).await
    }

    /// Defines a schedule; it replaces the one of the same name.
    ///
    /// # Errors
    /// `malformed_cron`, `unknown_zone` and so on if the definition is invalid; `schedule_busy`; and as every call.
    pub async fn put_schedule(&self, name: &str, fields: &ScheduleFields<'_>) -> Result<ScheduleDefined> {
        let call = Call::change(Path::of(Operation::PutSchedule, &[name])).json(fields).harmless();
        self.delivery(call).await
    }

    /// Removes a schedule. Runs that were put stay.
    ///
    /// # Errors
    /// `unknown_schedule`, `schedule_busy`, and as every call.
    pub async fn delete_schedule(&self, name: &str) -> Result<Removed> {
        self.delivery(Call::change(Path::of(Operation::DeleteSchedule, &[name]))).await
    }

    /// Returns the next instants of a schedule, before jitter; at most 1,000.
    ///
    /// # Errors
    /// `unknown_schedule`, and as every call.
    pub async fn next_runs(&self, name: &str, count: usize) -> Result<Instants> {
        self.delivery(Call::read(Path::of(Operation::NextRuns, &[name]).query("count", count))).await
    }

    /// Puts a run of a schedule now, in addition to the runs at its instants.
    ///
    /// # Errors
    /// `unknown_schedule`, `key_taken` if an earlier run is not done, and as every call.
    pub async fn run_schedule(&self, name: &str) -> Result<PutAnswer> {
        self.delivery(Call::change(Path::of(Operation::RunSchedule, &[name]))).await
    }

    /// Pauses a schedule until it is resumed.
    ///
    /// # Errors
    /// `unknown_schedule`, `schedule_busy`, and as every call.
    pub async fn pause_schedule(&self, name: &str) -> Result<Schedule<'static>> {
        self.delivery(Call::change(Path::of(Operation::PauseSchedule, &[name])).harmless()).await
    }

    /// Resumes a schedule, from its next instant on.
    ///
    /// # Errors
    /// `unknown_schedule`, `schedule_busy`, and as every call.
    pub async fn resume_schedule(&self, name: &str) -> Result<Schedule<'static>> {
        self.delivery(Call::change(Path::of(Operation::ResumeSchedule, &[name])).harmless()).await
    }

    async fn delivery<T: DeserializeOwned>(&self, call: Call) -> Result<T> {
        self.inner.reactor.enter(self.inner.send(call)).await
    }
}

//! The doctor: what is wrong with a queue, and mending it.
//!
//! It reads in pages and keeps digests, so a queue of any size costs Redis little at a time. Live clients change
//! the queue meanwhile: what looked wrong is looked at a second time in one step before it is told, and a third
//! time when it is mended.
//!
//! # Layout
//! - `finding`: what can be wrong, and what helps
//! - `survey`: the reading
//! - `fix`: the mending

mod finding;
mod fix;
mod survey;

use dwell_model::Timestamp;
use dwell_redis::Link;
use serde::Serialize;

pub use self::finding::{Finding, Fix, Kind};
use super::element::Layout;
use super::error::Error;
use super::keys::Keys;
use super::mover::MoverOptions;

/// What the doctor is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorOptions {
    /// An element that is due for so long, in ms, and was not moved is overdue.
    pub overdue_ms: u64,
    /// What the Java clients read. `None` takes what most pending elements have.
    pub layout: Option<Layout>,
    /// After how many failed attempts a payload is dead; for leases that ran out.
    pub max_attempts: u32,
}

impl Default for DoctorOptions {
    /// Overdue after 5 s, since Java tries again after that; the layout that most have; 10 attempts.
    fn default() -> DoctorOptions {
        DoctorOptions { overdue_ms: 5_000, layout: None, max_attempts: MoverOptions::default().max_attempts }
    }
}

/// What the doctor saw.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The queue's name.
    pub queue: String,
    /// When, by Redis' clock.
    #[serde(serialize_with = "as_text")]
    pub at: Timestamp,
    /// Elements in Redisson's list of pending ones.
    pub listed: usize,
    /// Elements in the sorted set of instants.
    pub scheduled: usize,
    /// Payloads at the destination.
    pub ready: usize,
    /// Payloads leased by consumers of ours.
    pub leased: usize,
    /// Subscriptions to the queue's channel: movers, Java's and ours.
    pub listeners: usize,
    /// The first instant.
    #[serde(serialize_with = "as_optional_text", skip_serializing_if = "Option::is_none")]
    pub next_due: Option<Timestamp>,
    /// The layout that the Java clients read, or that most pending elements have.
    pub layout: Layout,
    /// What is wrong, the worst first.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_healthy(&self) -> bool {
        self.findings.iter().all(|finding| !finding.kind.is_trouble())
    }

    /// The findings that something can be done about.
    pub fn plan(&self) -> impl Iterator<Item = (&Finding, Fix)> {
        self.findings.iter().filter_map(|finding| Some((finding, finding.kind.fix()?)))
    }
}

/// Looks at one queue.
pub struct Doctor {
    link: Link,
    keys: Keys,
    options: DoctorOptions,
}

impl Doctor {
    /// A doctor for the queue with these keys.
    pub fn new(link: Link, keys: Keys, options: DoctorOptions) -> Doctor {
        Doctor { link, keys, options }
    }

    /// Looks, and changes nothing.
    ///
    /// # Errors
    /// Those of the connection. A key of the wrong type is a finding.
    pub async fn examine(&self) -> Result<Report, Error> {
        survey::examine(self).await
    }

    /// Mends what a finding tells of; how many elements were mended. What has changed since the report is left
    /// alone. Nothing is deleted: what can not stay is set aside.
    ///
    /// # Errors
    /// Those of the connection; what was mended before stays mended.
    pub async fn fix(&self, finding: &Finding) -> Result<usize, Error> {
        fix::fix(self, finding).await
    }

    fn error(&self, error: &redis::RedisError) -> Error {
        Error::of(self.keys.name(), error)
    }

    async fn ask<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> Result<T, Error> {
        self.link.ask(command).await.map_err(|error| self.error(&error))
    }
}

fn as_text<S: serde::Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}

fn as_optional_text<S: serde::Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => serializer.collect_str(at),
        None => serializer.serialize_none(),
    }
}

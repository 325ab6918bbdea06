//! The doctor: finds the problems of a queue, and fixes them.
//!
//! It reads in pages and keeps digests, so it puts little load on Redis at a time, whatever the size of the queue. Live
//! clients change the queue meanwhile, so a suspected problem is checked again in one atomic step before it is
//! reported, and a third time when it is fixed.
//!
//! # Layout
//! - `finding`: problems and their fixes
//! - `survey`: reading the queue
//! - `fix`: applying the fixes

mod finding;
mod fix;
mod survey;

use dwell_model::Timestamp;
use dwell_redis::Link;
use serde::Serialize;

pub use self::finding::{Finding, FindingKind, Fix};
use super::element::Layout;
use super::error::Error;
use super::keys::Keys;
use super::mover::MoverOptions;

/// The options of a [`Doctor`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorOptions {
    /// An element that has been due for this long without being moved is overdue, in ms.
    pub overdue_ms: u64,
    /// The layout of the Java clients. `None` takes that of most pending elements.
    pub layout: Option<Layout>,
    /// The number of failed attempts after which a payload is dead; used for lapsed leases.
    pub max_attempts: u32,
}

impl Default for DoctorOptions {
    /// Overdue after 5 s, the interval at which Java tries again; the layout of most pending elements; 10 attempts.
    fn default() -> DoctorOptions {
        DoctorOptions { overdue_ms: 5_000, layout: None, max_attempts: MoverOptions::default().max_attempts }
    }
}

/// The result of an examination.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The queue's name.
    pub queue: String,
    /// The time of the examination, on Redis' clock.
    #[serde(serialize_with = "as_text")]
    pub at: Timestamp,
    /// The number of elements in Redisson's list of pending ones.
    pub listed: usize,
    /// The number of elements in the sorted set of instants.
    pub scheduled: usize,
    /// The number of payloads at the destination.
    pub ready: usize,
    /// The number of payloads leased by our consumers.
    pub leased: usize,
    /// The number of subscriptions to the queue's channel: movers, Java's and ours.
    pub listeners: usize,
    /// The earliest instant.
    #[serde(serialize_with = "as_optional_text", skip_serializing_if = "Option::is_none")]
    pub next_due: Option<Timestamp>,
    /// The layout of the Java clients, or that of most pending elements.
    pub layout: Layout,
    /// The problems, the worst first.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether there are no problems.
    pub fn is_healthy(&self) -> bool {
        self.findings.iter().all(|finding| !finding.kind.is_trouble())
    }

    /// The findings that have a fix.
    pub fn plan(&self) -> impl Iterator<Item = (&Finding, Fix)> {
        self.findings.iter().filter_map(|finding| Some((finding, finding.kind.fix()?)))
    }
}

/// Examines one queue.
pub struct Doctor {
    link: Link,
    keys: Keys,
    options: DoctorOptions,
}

impl Doctor {
    /// Creates a doctor for the queue with these keys.
    pub fn new(link: Link, keys: Keys, options: DoctorOptions) -> Doctor {
        Doctor { link, keys, options }
    }

    /// Examines the queue, and changes nothing.
    ///
    /// # Errors
    /// Connection errors. A key of the wrong type is a finding.
    pub async fn examine(&self) -> Result<Report, Error> {
        survey::examine(self).await
    }

    /// Fixes a finding. Returns the number of fixed elements.
    ///
    /// Elements that have changed since the report are left alone. Nothing is deleted: elements that cannot stay are
    /// set aside.
    ///
    /// # Errors
    /// Connection errors; elements that were fixed before stay fixed.
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

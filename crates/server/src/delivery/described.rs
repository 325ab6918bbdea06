//! What a sink is, as the configuration says it and as it is run.

use std::fmt;
use std::time::Duration;

use dwell_delivery::sinks::webhook::{Network, Secret, Webhook};
use dwell_delivery::{Ladder, Lane, Rate, Switch};
use dwell_model::QueueName;

/// A sink: what passes the messages of some queues on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SinkConfig {
    /// What it is called by.
    pub name: String,
    /// The queues that it takes from; no other sink does.
    pub queues: Vec<QueueName>,
    /// What it is.
    pub kind: SinkKind,
    /// The bounds of each of its queues.
    pub lane: LaneConfig,
}

/// Kinds of sinks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SinkKind {
    /// A request over HTTP for each message.
    Webhook(WebhookConfig),
}

/// A webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WebhookConfig {
    /// Where messages go.
    pub goal: WebhookGoal,
    /// What requests are signed with, the newest first.
    pub secrets: Vec<Secret>,
    /// Certificates in PEM of which one has to have signed the receiver's.
    pub ca: Option<Vec<u8>>,
    /// How long an answer may take, in milliseconds.
    pub timeout_ms: u64,
}

/// Where the messages of a webhook go.
#[derive(Clone, PartialEq, Eq)]
pub enum WebhookGoal {
    /// All to this URL.
    Url(String),
    /// Each to the URL in a header of its own.
    Header {
        /// The header.
        name: String,
        /// Hosts that it may name.
        hosts: Vec<String>,
        /// Networks that are not public and may be dialled.
        allow: Vec<Network>,
    },
}

/// The bounds of a queue of a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneConfig {
    /// Messages at a time.
    pub concurrency: usize,
    /// Messages a second.
    pub rate: Option<u32>,
    /// Bytes of bodies at a time.
    pub bytes_in_flight: Option<usize>,
    /// One after the other, in the order of the queue.
    pub is_strict: bool,
    /// Delays between attempts, in place of the queue's backoff.
    pub retry: Option<Ladder>,
    /// The lease of a message, in milliseconds.
    pub lease_ms: u64,
}

impl Default for LaneConfig {
    fn default() -> LaneConfig {
        LaneConfig {
            concurrency: Lane::CONCURRENCY,
            rate: None,
            bytes_in_flight: None,
            is_strict: false,
            retry: None,
            lease_ms: Lane::LEASE_MS,
        }
    }
}

impl fmt::Debug for WebhookGoal {
    /// The path of a URL may be a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WebhookGoal::Url(url) => f.debug_tuple("Url").field(&without_path(url)).finish(),
            WebhookGoal::Header { name, .. } => {
                f.debug_struct("Header").field("name", name).finish_non_exhaustive()
            }
        }
    }
}

impl SinkKind {
    /// The word that configuration uses.
    pub const fn as_str(&self) -> &'static str {
        match self {
            SinkKind::Webhook(_) => "webhook",
        }
    }
}

impl WebhookConfig {
    /// The webhook, paused by `switch`.
    ///
    /// # Errors
    /// Those of [`Builder::build`](dwell_delivery::sinks::webhook::Builder::build).
    pub(crate) fn build(&self, switch: &Switch) -> dwell_delivery::Result<Webhook> {
        let mut builder = match &self.goal {
            WebhookGoal::Url(url) => Webhook::to(url),
            WebhookGoal::Header { name, hosts, allow } => {
                let builder = Webhook::by_header(name).hosts(hosts);
                allow.iter().fold(builder, |builder, network| builder.allow(*network))
            }
        };
        builder = builder.secrets(self.secrets.iter().cloned());
        if let Some(pem) = &self.ca {
            builder = builder.ca_pem(pem);
        }
        builder.timeout(Duration::from_millis(self.timeout_ms)).switch(switch).build()
    }
}

impl WebhookConfig {
    /// The key because of which none can be made of it: the one without which one could.
    pub(crate) fn culprit(&self) -> &'static str {
        let can_be = |other: &WebhookConfig| other.build(&Switch::new()).is_ok();
        let without_ca = WebhookConfig { ca: None, ..self.clone() };
        match &self.goal {
            _ if can_be(&without_ca) => "ca",
            WebhookGoal::Url(_) => "url",
            WebhookGoal::Header { name, allow, .. } => {
                let (name, hosts, allow) = (name.clone(), vec!["*".to_owned()], allow.clone());
                let goal = WebhookGoal::Header { name, hosts, allow };
                if can_be(&WebhookConfig { goal, ..without_ca }) { "hosts" } else { "url_header" }
            }
        }
    }
}

impl LaneConfig {
    /// The lane with these bounds.
    pub(crate) fn bound(&self, mut lane: Lane) -> Lane {
        lane = lane.concurrency(self.concurrency).lease(Duration::from_millis(self.lease_ms));
        if let Some(rate) = self.rate {
            lane = lane.rate(Rate::per_second(rate));
        }
        if let Some(bytes) = self.bytes_in_flight {
            lane = lane.bytes_in_flight(bytes);
        }
        if self.is_strict {
            lane = lane.strict();
        }
        match &self.retry {
            Some(ladder) => lane.retry(ladder.clone()),
            None => lane,
        }
    }
}

/// A URL up to its path.
pub(crate) fn without_path(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    // A user and a password are refused, and not shown either: a password may have any character in it, also one that would end the host.
    if rest.contains('@') {
        return format!("{scheme}://…");
    }
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let more = if host.len() < rest.len() { "/…" } else { "" };
    format!("{scheme}://{host}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_what_may_be_a_password() {
        for (url, shown) in [
            ("https://h.example", "https://h.example"),
            ("https://h.example:8443/services/s3cret", "https://h.example:8443/…"),
            ("https://h.example?token=s3cret", "https://h.example/…"),
            ("https://u:s3cret@h.example/", "https://…"),
            ("https://u:s3/cret@h.example/", "https://…"),
            ("https://u:s3?cret#s3@h.example", "https://…"),
        ] {
            assert_eq!(without_path(url), shown, "{url}");
        }
    }
}

//! Counts of messages that died or were discarded, by queue and reason.

use dwell_model::QueueName;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Counts of messages that died or were discarded since the server opened its store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Deaths {
    /// By queue.
    pub queues: Vec<QueueDeaths>,
}

/// Counts of messages that died in a queue or were discarded from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct QueueDeaths {
    /// The queue, which may no longer exist; left out of the joint counts of all queues beyond the first 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// How many messages died, by reason.
    pub deaths: DeathCounts,
    /// How many messages were discarded, by reason.
    pub discarded: DiscardCounts,
}

/// How many messages died, by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct DeathCounts {
    /// A retry spent the last attempt.
    pub attempts: u64,
    /// A lease ran out, or was ended, with the last attempt.
    pub lapse: u64,
    /// The expiry passed.
    pub expiry: u64,
    /// A consumer buried it.
    pub buried: u64,
}

/// How many messages were discarded, by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct DiscardCounts {
    /// It had been dead for as long as the queue's `dead_ttl`.
    pub dead_ttl: u64,
    /// As many others as the queue's `dead_max` had died after it.
    pub dead_max: u64,
    /// It expired, and the queue's `on_expiry` drops expired messages: it was never dead.
    pub on_expiry: u64,
    /// A caller discarded it.
    pub asked: u64,
}

impl From<Vec<dwell_store::QueueDeaths>> for Deaths {
    fn from(all: Vec<dwell_store::QueueDeaths>) -> Deaths {
        let of = |of: dwell_store::QueueDeaths| {
            let dwell_store::DeathCounts { attempts, lapse, expiry, buried } = of.deaths;
            let dwell_store::DiscardCounts { dead_ttl, dead_max, on_expiry, asked } = of.discarded;
            QueueDeaths {
                queue: of.queue,
                deaths: DeathCounts { attempts, lapse, expiry, buried },
                discarded: DiscardCounts { dead_ttl, dead_max, on_expiry, asked },
            }
        };
        Deaths { queues: all.into_iter().map(of).collect() }
    }
}

impl From<Deaths> for Vec<dwell_store::QueueDeaths> {
    fn from(all: Deaths) -> Vec<dwell_store::QueueDeaths> {
        let of = |of: QueueDeaths| {
            let DeathCounts { attempts, lapse, expiry, buried } = of.deaths;
            let DiscardCounts { dead_ttl, dead_max, on_expiry, asked } = of.discarded;
            dwell_store::QueueDeaths {
                queue: of.queue,
                deaths: dwell_store::DeathCounts { attempts, lapse, expiry, buried },
                discarded: dwell_store::DiscardCounts { dead_ttl, dead_max, on_expiry, asked },
            }
        };
        all.queues.into_iter().map(of).collect()
    }
}

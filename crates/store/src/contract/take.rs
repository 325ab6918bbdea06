//! What a take asks for, and what it hands over.

use bytes::Bytes;
use dwell_model::{Holder, Message, QueueName, Receipt, Timestamp};

/// A wish for due messages.
///
/// ```
/// use dwell_store::Take;
/// let take = Take::from("orders".parse().unwrap()).max(10).wait_ms(30_000);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// From these queues; across them by (priority, due, id). A name given twice counts once.
    pub queues: Vec<QueueName>,
    /// At most so many messages; 0 takes none.
    pub max: usize,
    /// At most so many bytes of bodies, but always one message. A store may stop where headers take up more than that.
    pub max_bytes: Option<usize>,
    /// How long to wait for the first message, in milliseconds.
    pub wait_ms: u64,
    /// The lease in milliseconds, over message and queue; bounds as [`dwell_model::Setting::LeaseMs`].
    pub lease_ms: Option<u64>,
    /// Whether the leases end with this process: its messages are freed when the store is opened again.
    pub bound: bool,
    /// Who takes, for people to see with the leases.
    pub holder: Option<Holder>,
}

impl Take {
    /// One message from `queue`, without waiting.
    pub fn from(queue: QueueName) -> Take {
        Take::from_all([queue])
    }

    /// One message from any of `queues`, without waiting.
    pub fn from_all(queues: impl IntoIterator<Item = QueueName>) -> Take {
        Take {
            queues: queues.into_iter().collect(),
            max: 1,
            max_bytes: None,
            wait_ms: 0,
            lease_ms: None,
            bound: false,
            holder: None,
        }
    }

    /// At most so many messages.
    pub fn max(self, max: usize) -> Take {
        Take { max, ..self }
    }

    /// At most so many bytes of bodies, but always one message.
    pub fn max_bytes(self, max_bytes: usize) -> Take {
        Take { max_bytes: Some(max_bytes), ..self }
    }

    /// Wait so long for the first message, in milliseconds.
    pub fn wait_ms(self, wait_ms: u64) -> Take {
        Take { wait_ms, ..self }
    }

    /// The lease in milliseconds.
    pub fn lease_ms(self, lease_ms: u64) -> Take {
        Take { lease_ms: Some(lease_ms), ..self }
    }

    /// The leases end with this process.
    pub fn bound(self) -> Take {
        Take { bound: true, ..self }
    }

    /// Held by this one.
    pub fn holder(self, holder: Holder) -> Take {
        Take { holder: Some(holder), ..self }
    }
}

/// How a message is held that is taken by its id; by default as long as message and queue say, beyond this process, by
/// nobody who has a name.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LeaseTerms {
    /// See [`Take::lease_ms`].
    pub lease_ms: Option<u64>,
    /// See [`Take::bound`].
    pub bound: bool,
    /// See [`Take::holder`].
    pub holder: Option<Holder>,
}

impl LeaseTerms {
    /// For so many milliseconds.
    pub fn of_ms(lease_ms: u64) -> LeaseTerms {
        LeaseTerms { lease_ms: Some(lease_ms), ..LeaseTerms::default() }
    }
}

/// A message handed over, under a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<B = Bytes> {
    /// The message as it stands now: leased.
    pub message: Message<B>,
    /// Proof of the lease: what to settle with.
    pub receipt: Receipt,
    /// When the lease runs out, by the store's wall clock at the take.
    pub lease_until: Timestamp,
    /// The store's wall clock at the take. "Early" is judged by it alone.
    pub taken_at: Timestamp,
    /// `taken_at` less the latest of: due, put, last made ready; in milliseconds.
    pub lateness_ms: u64,
}

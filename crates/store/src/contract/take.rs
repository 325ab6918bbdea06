//! The arguments of a take, and its deliveries.

use bytes::Bytes;
use dwell_model::{Holder, Message, QueueName, Receipt, Timestamp};

/// A request for due messages.
///
/// ```
/// use dwell_store::Take;
/// let take = Take::from("orders".parse().unwrap()).max(10).wait_ms(30_000);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// From these queues; across them by (priority, due, id). A name given twice counts once.
    pub queues: Vec<QueueName>,
    /// The maximum number of messages; 0 takes none.
    pub max: usize,
    /// The maximum size of the bodies in bytes; at least one message is handed out regardless. A store may
    /// stop earlier if headers exceed it.
    pub max_bytes: Option<usize>,
    /// How long to wait for the first message, in milliseconds.
    pub wait_ms: u64,
    /// The lease in milliseconds, over message and queue; bounds as [`dwell_model::Setting::LeaseMs`].
    pub lease_ms: Option<u64>,
    /// Whether the leases end with this process: its messages are freed when the store is opened again.
    pub session: bool,
    /// The name of the taker, shown with its leases.
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
            session: false,
            holder: None,
        }
    }

    /// Sets the maximum number of messages.
    pub fn max(self, max: usize) -> Take {
        Take { max, ..self }
    }

    /// Sets the maximum size of the bodies in bytes; at least one message is handed out regardless.
    pub fn max_bytes(self, max_bytes: usize) -> Take {
        Take { max_bytes: Some(max_bytes), ..self }
    }

    /// Sets how long to wait for the first message, in ms.
    pub fn wait_ms(self, wait_ms: u64) -> Take {
        Take { wait_ms, ..self }
    }

    /// Sets the lease in milliseconds.
    pub fn lease_ms(self, lease_ms: u64) -> Take {
        Take { lease_ms: Some(lease_ms), ..self }
    }

    /// Makes the leases end with this process.
    pub fn session(self) -> Take {
        Take { session: true, ..self }
    }

    /// Sets the name of the holder.
    pub fn holder(self, holder: Holder) -> Take {
        Take { holder: Some(holder), ..self }
    }
}

/// The terms of the lease of a message that is taken by its id. By default its length is that of message and
/// queue, it outlives this process, and it has no holder's name.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LeaseTerms {
    /// See [`Take::lease_ms`].
    pub lease_ms: Option<u64>,
    /// See [`Take::session`].
    pub session: bool,
    /// See [`Take::holder`].
    pub holder: Option<Holder>,
}

impl LeaseTerms {
    /// A lease of this many milliseconds.
    pub fn of_ms(lease_ms: u64) -> LeaseTerms {
        LeaseTerms { lease_ms: Some(lease_ms), ..LeaseTerms::default() }
    }
}

/// A message that was handed out, under a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<B = Bytes> {
    /// The message in its present state: leased.
    pub message: Message<B>,
    /// The proof of the lease, used to settle.
    pub receipt: Receipt,
    /// When the lease runs out, by the store's wall clock at the take.
    pub lease_until: Timestamp,
    /// The store's wall clock at the take. "Early" is judged by it alone.
    pub taken_at: Timestamp,
    /// `taken_at` less the latest of: due, put, last made ready; in milliseconds.
    pub lateness_ms: u64,
}

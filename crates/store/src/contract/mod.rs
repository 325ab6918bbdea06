//! The contract: what every store does, in one object-safe trait.

mod blocking;
mod change;
mod delegate;
mod forecast;
mod inspect;
mod put;
mod settle;
mod take;

use async_trait::async_trait;
use dwell_model::{
    Cursor, Limits, Message, MessageId, Number, QueueName, SettingChange, StateKind, Timestamp,
};

pub use blocking::Blocking;
pub use change::{BulkOutcome, Cancelled, LeaseRef, Rescheduled, Selection, Target};
#[doc(hidden)]
pub use delegate::delegated;
pub use forecast::Forecast;
pub use inspect::{DeathCounts, DiscardCounts, Page, QueueDeaths, QueueStats, StateCounts};
pub use put::{OnConflict, Put, PutAnswer, PutDigest, PutOutcome, When};
pub use settle::{Action, Settle, Settled};
pub use take::{Delivery, LeaseTerms, Take};

use crate::Error;

/// The answer to one item of a batch.
pub type Result<T> = std::result::Result<T, Error>;

/// A store of messages that are held until their moment.
///
/// Calls take many items and answer each separately, in the order given: a bad item fails alone. A call that
/// fails as a whole (the store is closed, the batch too large) fails every item with the same error. Items of
/// one call take effect in their order.
///
/// Any call may be refused with [`Error::Closed`] or [`Error::Unavailable`], and by a store whose medium has
/// failed with [`Error::Stopped`]; a call that changes something may also end with [`Error::OutcomeUnknown`].
/// Each call lists its other errors.
///
/// A key names live messages, an id names any. Retention and expiry are exact wherever a message is named by
/// id or key, and show in counts, lists and [`locate`](Store::locate) within a minute.
///
/// Futures may be dropped at any time. Except for [`take`](Store::take) and [`take_id`](Store::take_id),
/// whose messages are then given back, the call may or may not take effect.
///
/// The bullets below are the names of the tests in `conformance`.
///
/// # Contract
/// - A message is handed out at its instant and never before
/// - What was put comes back byte for byte
/// - A name never used before needs no creation
/// - A put that was answered survives a restart
/// - A settlement that was answered survives a restart
/// - States, order and numbers are the same after a restart
/// - Due messages go out by priority, then due, then id
/// - At most one valid receipt exists for a message
/// - A message that fails again and again delays no other
/// - A stale receipt changes nothing
/// - A bad item in a batch fails alone
/// - A refusal changes nothing
/// - A forward step of the clock makes due what it passes
/// - A ready message stays ready when the clock steps back
/// - A ready message stays ready when the clock steps back across a restart
/// - A step of the clock moves no lease
/// - A clean close releases session leases and spends no attempt
/// - Deaths and discards are counted by queue and reason
#[async_trait]
pub trait Store: Send + Sync {
    /// Puts messages.
    ///
    /// # Contract
    /// - A delay counts from the store's clock at the put
    /// - A past instant is due now
    /// - A put without a delay is due at once
    /// - An instant past 9999 is refused
    /// - A level names a delay of the queue's table, and an unknown one is refused
    /// - Expiry must lie after due
    /// - A put whose expiry has passed is refused and changes nothing
    /// - A lease of its own must be in bounds
    /// - Reject answers with the id that stands
    /// - A key is free once its message is gone or dead
    /// - A key is free from the instant of an expiry on
    /// - Keys are scoped to their queue
    /// - Replace puts a new message and the old id is gone
    /// - Replace of a leased message passes the key on and its holder settles it keyless
    /// - A refused replace leaves the old message standing
    /// - Keep retains id and body and the earlier instant wins
    /// - Keep of a leased message answers leased with the standing id
    /// - Keep of a ready message leaves it ready
    /// - The same idempotency key gives the same answer and puts nothing, also when the message is gone
    /// - An idempotency key is forgotten after its time
    /// - A refused put leaves its idempotency key unused
    /// - Idempotency keys are scoped to their queue
    /// - An idempotency key survives a restart
    /// - The same idempotency key for another body or key is a mismatch and changes nothing
    /// - The same idempotency key may come with another instant and other headers
    /// - A mismatch is noticed after a restart and when the message is gone
    /// - An idempotency key is answered as before after its message was discarded
    /// - Past the cap of a queue's idempotency keys new ones are refused there and nowhere else
    /// - A full queue refuses with retry later and drops nothing
    /// - Replace and keep fit into a full queue
    /// - Replace and keep fit into a queue that holds more than it may
    /// - Too many queues are refused
    /// - A body over the limit is refused
    /// - A batch over the limit is refused whole
    /// - Numbers rise and are never used again
    ///
    /// An idempotency key stands for the body and the key of its put; where a queue is spread over partitions, a
    /// different key may remain unnoticed. The answer stays the same if the message has since been acked,
    /// cancelled, purged or discarded. A queue's limit of pending messages does not count dead and leased
    /// ones.
    ///
    /// # Errors
    /// Per item: [`Error::Invalid`], [`Error::IdempotencyMismatch`], [`Error::KeyTaken`], [`Error::Leased`], [`Error::QueueFull`],
    /// [`Error::TooManyQueues`], [`Error::DiskFull`], [`Error::Overloaded`], [`Error::Exhausted`].
    async fn put(&self, puts: Vec<Put>) -> Vec<Result<PutAnswer>>;

    /// Hands out due messages; waits for the first one if asked to.
    ///
    /// # Contract
    /// - A take waits without polling and wakes on the instant
    /// - A take that waits in vain answers with nothing
    /// - A put of a due message wakes a waiting take
    /// - Waiting takes are served in the order of their coming
    /// - A forward step of the clock wakes a waiting take
    /// - A take over several queues goes by priority, due and id across them
    /// - A queue named twice counts once
    /// - Max bytes bounds a take but always grants one message
    /// - A take of none takes none
    /// - A take whose future is dropped gives its messages back at once without spending an attempt
    /// - The lease is the take's, else the message's, else the queue's
    /// - A take with a lease out of bounds is refused
    /// - A lapsed lease makes the message ready and spends an attempt
    /// - A message is dead when its attempts are spent
    /// - The limit of attempts is the message's, else the queue's
    /// - A lease survives a restart with its token and deadline
    /// - A session lease is freed at a restart and spends an attempt
    /// - Past the cap of leased messages a take is refused
    /// - Below the cap of leased messages a take grants what is left
    /// - Past the cap of a queue's leases its takes are refused and no others
    /// - A take over several queues gets from those below their caps
    /// - A take that waits at the cap of leases waits on until there is room
    /// - Past the cap of takes that wait on a queue others wait elsewhere
    /// - A take that would wait on one queue too many is refused
    /// - The caps of a queue hold after a restart
    /// - At its max leased a queue is as if paused and others do not notice
    /// - With max leased and the store's cap both reached a queue is as if paused
    /// - A take that waits at the max leased of its queue goes on when a lease ends or more are allowed
    /// - A lowered max leased ends no lease
    /// - Without lapse backoff a message is ready at once however often its lease runs out
    /// - From the lapse on that its queue names a message waits for the backoff
    /// - Backoff after a lapse counts from the deadline whoever notices it
    /// - A revived message lapses as a new one does
    /// - A session lease that is freed waits for the backoff after a lapse
    /// - A holder is shown while it holds and no longer
    /// - A holder survives a restart
    /// - A paused queue hands nothing out
    /// - A timed pause ends by itself and wakes a waiting take
    /// - A pause survives a restart
    /// - An expired message is not handed out
    /// - An expired message is gone and its key is free where its queue drops what expires
    /// - The setting decides when an expiry is noticed and what is dead stays dead
    /// - Taking from a queue never used before is no error
    /// - A delivery states when it was taken and how late it is
    ///
    /// Of several queues, those whose next message cannot be read now do not block the others: the take skips
    /// them, and is refused only if nothing else is due. If a queue hands some messages out and the next one
    /// cannot be read, the take ends with those: the messages of the other queues come with the next take.
    ///
    /// # Errors
    /// [`Error::TooManyLeased`] if a message is due but no lease may be granted, and the take does not wait;
    /// [`Error::TooManyWaiting`], [`Error::TooManyQueues`], [`Error::Invalid`]; [`Error::Unavailable`] and
    /// [`Error::Overloaded`], if a due message cannot be read, or has no room in memory.
    async fn take(&self, take: Take) -> Result<Vec<Delivery>>;

    /// Hands out this message, whether it is scheduled, ready or dead, also from a paused queue. Its due
    /// instant becomes now, if it was later.
    ///
    /// # Contract
    /// - Take by id hands out a scheduled, a ready and a dead message
    /// - Take by id hands out from a paused queue
    /// - Take by id of a leased message is refused
    /// - Take by id of what is not there is refused
    /// - Take by id of a dead message whose key has a new owner is refused
    /// - Take by id at the max leased of its queue is refused
    ///
    /// # Errors
    /// [`Error::MessageNotFound`], [`Error::Leased`], [`Error::KeyTaken`], [`Error::TooManyLeased`],
    /// [`Error::Invalid`].
    async fn take_id(&self, queue: QueueName, id: MessageId, terms: LeaseTerms) -> Result<Delivery>;

    /// Settles leased messages.
    ///
    /// # Contract
    /// - An acked message is gone
    /// - A retry is scheduled after its delay or the queue's backoff
    /// - Backoff grows from the smallest base on
    /// - A retry keeps the error
    /// - A release spends no attempt
    /// - A release with a delay is scheduled
    /// - A buried message is dead with its reason
    /// - Retry, release and bury may set a new priority
    /// - Extend moves the deadline
    /// - Extend without a length grants the old one anew
    /// - Extend out of bounds is refused
    /// - A receipt is stale after the lease ran out, and after it was settled
    /// - An expired message that is given back is dead
    /// - An expired message that is given back is gone where its queue drops what expires
    /// - An error text over the limit is refused
    /// - Counts of takes, lapses, releases, buries and revives are kept
    ///
    /// # Errors
    /// Per item: [`Error::LeaseLost`], [`Error::Invalid`].
    async fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>>;

    /// Ends leases as if their deadlines were now, for an operator who knows that a holder will not come
    /// back. Each lease is named as returned by a list of leased messages or by a get, so that a later holder
    /// is never affected.
    ///
    /// A take counts though its answer was not received. Only a take whose record is lost with the power, or in a
    /// failover, does not count: its number is used again, by a lease that a list from before would name.
    ///
    /// # Contract
    /// - An ended lease is as one that ran out
    /// - An ended lease waits for the backoff after a lapse
    /// - An expired message whose lease is ended is gone where its queue drops what expires
    /// - An ended lease wakes a waiting take
    /// - A lease by another take than was listed is not ended
    /// - A lease that nobody holds cannot be ended
    /// - An ended lease survives a restart
    ///
    /// # Errors
    /// Per item: [`Error::MessageNotFound`], [`Error::NotLeased`], [`Error::LeaseChanged`].
    async fn expire_lease(&self, queue: QueueName, leases: Vec<LeaseRef>) -> Vec<Result<Settled>>;

    /// Removes scheduled or ready messages.
    ///
    /// # Contract
    /// - Cancel says truthfully what it found
    /// - A cancelled message is never handed out
    /// - Cancel by key finds the live message that has it
    /// - Cancel by key of a replaced message finds the new one
    /// - A cancel that was answered survives a restart
    ///
    /// # Errors
    /// Those of the store as a whole; a missing message is [`Cancelled::NotFound`].
    async fn cancel(&self, queue: QueueName, targets: Vec<Target>) -> Vec<Result<Cancelled>>;

    /// Moves the instant of scheduled or ready messages; the id stays.
    ///
    /// # Contract
    /// - Reschedule moves the instant and keeps the id
    /// - A ready message can be rescheduled into the future
    /// - Reschedule of a leased or dead message changes nothing
    /// - Reschedule past the expiry is refused
    /// - A reschedule that was answered survives a restart
    /// - A reschedule to an earlier instant wakes a waiting take
    ///
    /// # Errors
    /// Per item: [`Error::Invalid`]; a missing message is [`Rescheduled::NotFound`].
    async fn reschedule(&self, queue: QueueName, moves: Vec<(Target, When)>) -> Vec<Result<Rescheduled>>;

    /// Reads messages in any state. By key it finds the live one; with `dead`, if none is live, the youngest
    /// dead one that had the key. Other calls find only live messages by key: to change a dead one, read its
    /// id here, so that a repeated call never affects the next older one.
    ///
    /// # Contract
    /// - Get answers as of now
    /// - Get by key finds the live message only
    /// - Get with dead finds the youngest of the dead that had the key where none is live
    /// - Get with dead finds none that gave its key up or was discarded
    /// - Get with dead finds the same after a restart
    /// - Get and settle see an expiry at its instant
    /// - A list of leased messages shows deadline, grant and holder
    ///
    /// # Errors
    /// Per item: [`Error::UnknownQueue`], [`Error::MessageNotFound`].
    async fn get(&self, queue: QueueName, targets: Vec<Target>, dead: bool) -> Vec<Result<Message>>;

    /// Finds messages by their numbers, in any queue; `None` if there is none.
    ///
    /// # Contract
    /// - Locate finds queue and id of a number
    /// - Locate finds a message that was rescheduled and one that is dead
    /// - Locate finds nothing once the message is gone
    /// - Locate finds a message after a restart
    ///
    /// # Errors
    /// Per item: [`Error::Unavailable`] and [`Error::ForeignData`], if the message may be in a place that
    /// cannot be read.
    async fn locate(&self, numbers: Vec<Number>) -> Vec<Result<Option<(QueueName, MessageId)>>>;

    /// One page of the messages in a state, in (due, id) order; a message that does not change during the
    /// walk appears exactly once. A message that cannot be read is in [`Page::unread`], and the others are
    /// not affected.
    ///
    /// # Contract
    /// - List pages in due and id order and shows each message once
    /// - A list continues from a cursor whose message is gone
    /// - Get, list and stats of an unknown queue say so
    ///
    /// # Errors
    /// [`Error::UnknownQueue`].
    async fn list(
        &self,
        queue: QueueName,
        state: StateKind,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<Page>;

    /// The first message of a state, as of now: of the ready ones the one that the next take receives, also
    /// while the queue is paused; of the dead ones the one that died first; of the others the first by (due,
    /// id).
    ///
    /// The default implementation searches the first thousand of a list, with their bodies. A store that
    /// maintains these orders should override it.
    ///
    /// # Contract
    /// - Peek shows what goes out next and what died first
    ///
    /// # Errors
    /// [`Error::UnknownQueue`].
    async fn peek(&self, queue: QueueName, state: StateKind) -> Result<Option<Message>> {
        let mut left = inspect::looked_through(state);
        let (mut first, mut after) = (None, None);
        while left > 0 {
            let page = self.list(queue.clone(), state, after, left.min(self.limits().batch.max(1))).await?;
            left = left.saturating_sub(page.messages.len().max(1));
            first = first.into_iter().chain(page.messages).min_by_key(inspect::peek_order);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(first)
    }

    /// The present state of a queue.
    ///
    /// # Contract
    /// - Counts are exact as of now
    /// - Urgent ready messages are counted by themselves
    /// - Stats count the takes that wait
    /// - Stats name the earliest instant
    ///
    /// # Errors
    /// [`Error::UnknownQueue`].
    async fn stats(&self, queue: QueueName) -> Result<QueueStats>;

    /// The number of scheduled messages that are due by each of `edges`, as of now: of these queues, or of
    /// all. A queue that cannot be read now is left out of the sum over all.
    ///
    /// The total of scheduled messages is exact, as in [`stats`](Store::stats). A count by an instant may be
    /// off by [`Forecast::within`] if a store counts by its indexes and reads no message. The instants may be
    /// in any order, and repeated; an instant that has passed counts nothing, since such messages are ready.
    /// A queue is counted at one moment, or each of its partitions if it has several; other queues at other
    /// moments.
    ///
    /// # Contract
    /// - A forecast counts what is due by each instant
    /// - A forecast follows what is cancelled, rescheduled, purged and taken
    /// - A forecast of several queues or of all is their sum
    /// - A forecast of an unknown queue says so
    /// - A forecast of too many instants is refused
    /// - A forecast agrees with a full listing after every change
    /// - A forecast is of one moment while messages are cancelled and rescheduled
    ///
    /// # Errors
    /// [`Error::UnknownQueue`]; [`Error::Invalid`] past [`Forecast::MAX_EDGES`] instants.
    async fn forecast(&self, queues: Option<Vec<QueueName>>, edges: Vec<Timestamp>) -> Result<Forecast>;

    /// Queues by name, starting with the first after `after`. A queue that cannot be read now does not affect
    /// the others: it is listed with its name and the reason ([`QueueStats::unread`]), which its
    /// [`stats`](Store::stats) also return.
    ///
    /// # Contract
    /// - A queue without messages, waiters and settings leaves the listing
    /// - Queues page by name
    async fn queues(&self, after: Option<QueueName>, max: usize) -> Result<Vec<QueueStats>>;

    /// Whether the store serves, by the cheapest query that shows it. A failure of a single queue, or the
    /// refusal of puts, does not count.
    ///
    /// # Contract
    /// - A store that serves is ready
    ///
    /// # Errors
    /// Those that a call would return: [`Error::Unavailable`], [`Error::Closed`], [`Error::ForeignData`].
    async fn ready(&self) -> Result<()> {
        self.queues(None, 1).await.map(drop)
    }

    /// Changes settings of a queue, all or none, and returns the queue as it is then.
    ///
    /// # Contract
    /// - Settings change at run time and survive a restart
    /// - A setting out of bounds is refused and none of its batch is made
    /// - Partitions are fixed while the queue has messages
    /// - A queue's levels change for later puts only
    /// - A setting taken back follows the default again
    /// - A pause that has ended is no setting any more
    /// - A retention or cap out of bounds is refused
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::SettingFixed`], [`Error::TooManyQueues`].
    async fn configure(&self, queue: QueueName, changes: Vec<SettingChange>) -> Result<QueueStats>;

    /// Revives dead messages, oldest first, due as `when` says, with all their attempts available again.
    /// Instants of death have a resolution of one millisecond: of those in the same one the lower id is the
    /// older.
    ///
    /// A revive of all or many of the oldest is not atomic: other calls are served in between and see a part
    /// of it, as does a store that is opened after a crash. It includes messages that are dead when the call
    /// begins and still are when their turn comes; one that dies meanwhile is revived once or not at all. The
    /// counts are exact. A call that ends before all messages have had their turn returns
    /// [`Error::OutcomeUnknown`] if any were revived, else the reason for the end; repeating the call
    /// continues with the rest.
    ///
    /// # Contract
    /// - Revive brings back one, many and all, oldest first
    /// - Revive of more than a thousand counts each of them once
    /// - Revive is refused where the key has a new owner
    /// - A revived message has all its attempts again
    /// - Revive of what is not dead is refused singly
    /// - A revive that was answered survives a restart
    /// - Revive passes the most pending
    /// - What is dead stays dead where no retention is set
    /// - A dead message is gone when its time is over
    /// - Each death beyond the most discards the oldest
    /// - A call that names what goes for a death that it notices finds nothing
    /// - Each partition keeps its share of the most dead rounded up
    /// - A lowered retention discards what is past it
    /// - Retention goes on after a restart
    ///
    /// # Errors
    /// [`Error::Invalid`]; refusals of single messages are in the answer. [`Error::Unavailable`], if it is
    /// about all or the oldest, while expired messages of the queue cannot be read: they are dead but not yet
    /// among the dead, so nothing is revived; also if dead messages cannot be read. [`Error::DiskFull`] and
    /// [`Error::Overloaded`], if there is no room for more messages.
    async fn revive(&self, queue: QueueName, which: Selection, when: When) -> Result<BulkOutcome>;

    /// The deaths and discards by queue, as noticed by this process since it opened the store. The order is
    /// by name; the entry without a name comes last.
    ///
    /// # Errors
    /// Those of the store as a whole.
    async fn deaths(&self) -> Result<Vec<QueueDeaths>>;

    /// Removes dead messages: all of them atomically, many of the oldest in steps as
    /// [`revive`](Store::revive) does.
    ///
    /// # Contract
    /// - Discard removes dead messages only
    /// - Discard removes one, many and all, oldest first
    ///
    /// # Errors
    /// As for [`revive`](Store::revive).
    async fn discard(&self, queue: QueueName, which: Selection) -> Result<BulkOutcome>;

    /// Removes all scheduled and ready messages; returns their number.
    ///
    /// # Contract
    /// - Purge leaves leased, dead and later messages alone
    /// - A purge that was answered survives a restart
    ///
    /// # Errors
    /// [`Error::Unavailable`] while expired messages of the queue cannot be read: they are dead, and a purge
    /// would remove them as pending.
    async fn purge(&self, queue: QueueName) -> Result<u64>;

    /// Removes all messages except the leased, and the queue's own settings; returns the number of messages.
    /// While messages are leased, a spread that differs from the default is kept, since it determines where
    /// they are stored. The defaults of the store's limits are in force then; settings of a configuration file
    /// come back when a server configures the queue again.
    ///
    /// # Contract
    /// - Delete queue leaves leased messages to their holders
    /// - A deleted queue leaves the listing and loses its settings
    /// - A deleted queue follows the defaults until it is configured again
    /// - A deleted queue keeps its partitions while messages are leased
    ///
    /// # Errors
    /// Those of the store as a whole. Messages that cannot be read are deleted too.
    async fn delete_queue(&self, queue: QueueName) -> Result<u64>;

    /// The limits that this store was opened with.
    fn limits(&self) -> &Limits;
}

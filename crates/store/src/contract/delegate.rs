//! Stores that wrap stores: a macro that forwards calls to the inner store.

/// Implements the forwarded calls of a [`Store`](crate::Store), inside the implementation for a wrapper of a
/// store.
///
/// Each operation is named once:
///
/// - `own`: the wrapper implements it beside the macro, as in any implementation
/// - `forward`: the call is passed to the inner store, and its future is returned unchanged
/// - `forward, method`: the call is passed to the inner store; its answer is passed to `method` of the
///   wrapper, which returns the wrapper's answer
///
/// An operation that is missing or named twice is a compile error, even if the trait has a default for it
/// (`peek` and `ready`). If these two are named as `own` and not implemented, they have the default, which
/// calls `list` and `queues` of the wrapper. `limits` are always those of the inner store, and are not named.
///
/// The field may hold the store itself or an [`Arc`](std::sync::Arc) of it, also an `Arc<dyn Store>`;
/// `self.0` is a field too.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use async_trait::async_trait;
/// # use dwell_model::{Limits, QueueName};
/// use dwell_store::{Delivery, MemoryStore, Result, Store, Take, delegate_store};
///
/// /// Counts takes, and refusals.
/// struct Counting {
///     inner: MemoryStore,
///     takes: AtomicU64,
///     refusals: AtomicU64,
/// }
///
/// impl Counting {
///     fn heard<T>(&self, answer: Result<T>) -> Result<T> {
///         self.refusals.fetch_add(u64::from(answer.is_err()), Ordering::Relaxed);
///         answer
///     }
/// }
///
/// #[async_trait]
/// impl Store for Counting {
///     async fn take(&self, take: Take) -> Result<Vec<Delivery>> {
///         self.takes.fetch_add(1, Ordering::Relaxed);
///         self.inner.take(take).await
///     }
///
///     delegate_store! {
///         self.inner;
///         own: take;
///         forward: put settle expire_lease cancel reschedule get locate;
///         forward, heard: take_id list peek stats forecast queues ready configure revive deaths discard purge delete_queue;
///     }
/// }
/// #
/// # let inner = MemoryStore::new(Limits::default(), std::sync::Arc::new(dwell_time::SystemClock::new()));
/// # let store = Counting { inner, takes: AtomicU64::new(0), refusals: AtomicU64::new(0) };
/// # let queue: QueueName = "orders".parse().unwrap();
/// # pollster::block_on(async {
/// # assert!(store.put(vec![dwell_store::Put::new(queue.clone(), "one")]).await[0].is_ok());
/// # assert_eq!(store.take(Take::from(queue.clone())).await.unwrap().len(), 1);
/// # assert_eq!(store.stats(queue).await.unwrap().counts.leased, 1);
/// # assert_eq!(store.stats("unknown".parse().unwrap()).await.unwrap_err().code(), "unknown_queue");
/// # });
/// # assert_eq!((store.takes.into_inner(), store.refusals.into_inner()), (1, 1));
/// ```
#[macro_export]
macro_rules! delegate_store {
    (
        $self:ident.$to:tt;
        $(own: $($own:ident)+;)?
        $(forward $(, $heard:ident)?: $($call:ident)+;)+
    ) => {
        fn limits(&$self) -> &$crate::delegated::Limits {
            // The one place that has all names.
            const _: $crate::delegated::EveryOperation = $crate::delegated::EveryOperation {
                $($($own: (),)+)?
                $($($call: (),)+)+
            };
            $crate::Store::limits($crate::delegated::store(&$self.$to))
        }
        $($crate::delegate_store! { @forward ($self $to $($heard)?) $($call)+ })+
    };
    (@forward $how:tt $($call:ident)+) => {
        $($crate::delegate_store! { @$call $how })+
    };

    (@put $how:tt) => {
        $crate::delegate_store! { @call $how put(
            puts: ::std::vec::Vec<$crate::Put>
        ) -> $crate::delegated::EachAnswer<$crate::PutAnswer> }
    };
    (@take $how:tt) => {
        $crate::delegate_store! { @call $how take(
            take: $crate::Take
        ) -> $crate::Result<::std::vec::Vec<$crate::Delivery>> }
    };
    (@take_id $how:tt) => {
        $crate::delegate_store! { @call $how take_id(
            queue: $crate::delegated::QueueName,
            id: $crate::delegated::MessageId,
            terms: $crate::LeaseTerms
        ) -> $crate::Result<$crate::Delivery> }
    };
    (@settle $how:tt) => {
        $crate::delegate_store! { @call $how settle(
            settles: ::std::vec::Vec<$crate::Settle>
        ) -> $crate::delegated::EachAnswer<$crate::Settled> }
    };
    (@expire_lease $how:tt) => {
        $crate::delegate_store! { @call $how expire_lease(
            queue: $crate::delegated::QueueName,
            leases: ::std::vec::Vec<$crate::LeaseRef>
        ) -> $crate::delegated::EachAnswer<$crate::Settled> }
    };
    (@cancel $how:tt) => {
        $crate::delegate_store! { @call $how cancel(
            queue: $crate::delegated::QueueName,
            targets: ::std::vec::Vec<$crate::Target>
        ) -> $crate::delegated::EachAnswer<$crate::Cancelled> }
    };
    (@reschedule $how:tt) => {
        $crate::delegate_store! { @call $how reschedule(
            queue: $crate::delegated::QueueName,
            moves: ::std::vec::Vec<($crate::Target, $crate::When)>
        ) -> $crate::delegated::EachAnswer<$crate::Rescheduled> }
    };
    (@get $how:tt) => {
        $crate::delegate_store! { @call $how get(
            queue: $crate::delegated::QueueName,
            targets: ::std::vec::Vec<$crate::Target>,
            dead: bool
        ) -> $crate::delegated::EachAnswer<$crate::delegated::Message> }
    };
    (@locate $how:tt) => {
        $crate::delegate_store! { @call $how locate(
            numbers: ::std::vec::Vec<$crate::delegated::Number>
        ) -> $crate::delegated::EachAnswer<
            ::std::option::Option<($crate::delegated::QueueName, $crate::delegated::MessageId)>
        > }
    };
    (@list $how:tt) => {
        $crate::delegate_store! { @call $how list(
            queue: $crate::delegated::QueueName,
            state: $crate::delegated::StateKind,
            after: ::std::option::Option<$crate::delegated::Cursor>,
            max: usize
        ) -> $crate::Result<$crate::Page> }
    };
    (@peek $how:tt) => {
        $crate::delegate_store! { @call $how peek(
            queue: $crate::delegated::QueueName,
            state: $crate::delegated::StateKind
        ) -> $crate::Result<::std::option::Option<$crate::delegated::Message>> }
    };
    (@stats $how:tt) => {
        $crate::delegate_store! { @call $how stats(
            queue: $crate::delegated::QueueName
        ) -> $crate::Result<$crate::QueueStats> }
    };
    (@forecast $how:tt) => {
        $crate::delegate_store! { @call $how forecast(
            queues: ::std::option::Option<::std::vec::Vec<$crate::delegated::QueueName>>,
            edges: ::std::vec::Vec<$crate::delegated::Timestamp>
        ) -> $crate::Result<$crate::Forecast> }
    };
    (@queues $how:tt) => {
        $crate::delegate_store! { @call $how queues(
            after: ::std::option::Option<$crate::delegated::QueueName>,
            max: usize
        ) -> $crate::Result<::std::vec::Vec<$crate::QueueStats>> }
    };
    (@ready $how:tt) => {
        $crate::delegate_store! { @call $how ready() -> $crate::Result<()> }
    };
    (@configure $how:tt) => {
        $crate::delegate_store! { @call $how configure(
            queue: $crate::delegated::QueueName,
            changes: ::std::vec::Vec<$crate::delegated::SettingChange>
        ) -> $crate::Result<$crate::QueueStats> }
    };
    (@revive $how:tt) => {
        $crate::delegate_store! { @call $how revive(
            queue: $crate::delegated::QueueName,
            which: $crate::Selection,
            when: $crate::When
        ) -> $crate::Result<$crate::BulkOutcome> }
    };
    (@deaths $how:tt) => {
        $crate::delegate_store! { @call $how deaths(
        ) -> $crate::Result<::std::vec::Vec<$crate::QueueDeaths>> }
    };
    (@discard $how:tt) => {
        $crate::delegate_store! { @call $how discard(
            queue: $crate::delegated::QueueName,
            which: $crate::Selection
        ) -> $crate::Result<$crate::BulkOutcome> }
    };
    (@purge $how:tt) => {
        $crate::delegate_store! { @call $how purge(
            queue: $crate::delegated::QueueName
        ) -> $crate::Result<u64> }
    };
    (@delete_queue $how:tt) => {
        $crate::delegate_store! { @call $how delete_queue(
            queue: $crate::delegated::QueueName
        ) -> $crate::Result<u64> }
    };

    // The expansion of `async_trait` for an `async fn` with `&self`, so that the future is returned without
    // another wrapper.
    (@call ($self:ident $to:tt) $call:ident($($argument:ident: $type:ty),*) -> $answer:ty) => {
        fn $call<'life0, 'async_trait>(
            &'life0 $self,
            $($argument: $type),*
        ) -> $crate::delegated::BoxFuture<'async_trait, $answer>
        where
            'life0: 'async_trait,
            Self: 'async_trait,
        {
            $crate::Store::$call($crate::delegated::store(&$self.$to), $($argument),*)
        }
    };
    (@call ($self:ident $to:tt $heard:ident) $call:ident($($argument:ident: $type:ty),*) -> $answer:ty) => {
        fn $call<'life0, 'async_trait>(
            &'life0 $self,
            $($argument: $type),*
        ) -> $crate::delegated::BoxFuture<'async_trait, $answer>
        where
            'life0: 'async_trait,
            Self: 'async_trait,
        {
            ::std::boxed::Box::pin(async move {
                let answer = $crate::Store::$call($crate::delegated::store(&$self.$to), $($argument),*).await;
                $self.$heard(answer)
            })
        }
    };
}

/// Items that the macro's expansion needs, whatever its user has in scope.
#[doc(hidden)]
pub mod delegated {
    use std::sync::Arc;

    pub use dwell_model::{
        Cursor, Limits, Message, MessageId, Number, QueueName, SettingChange, StateKind, Timestamp,
    };
    pub use futures_core::future::BoxFuture;

    use crate::{Result, Store};

    /// The answers to a batch, one per item.
    pub type EachAnswer<T> = Vec<Result<T>>;

    /// A field for each operation of a store, so that the compiler reports one that is missing or named
    /// twice.
    ///
    /// Here `peek` is missing:
    ///
    /// ```compile_fail,E0063
    /// struct Wrapper(dwell_store::MemoryStore);
    ///
    /// impl dwell_store::Store for Wrapper {
    ///     dwell_store::delegate_store! {
    ///         self.0;
    ///         forward: put take take_id settle expire_lease cancel reschedule get locate list stats forecast queues;
    ///         forward: ready configure revive deaths discard purge delete_queue;
    ///     }
    /// }
    /// ```
    ///
    /// And here all are named:
    ///
    /// ```
    /// struct Wrapper(dwell_store::MemoryStore);
    ///
    /// impl dwell_store::Store for Wrapper {
    ///     dwell_store::delegate_store! {
    ///         self.0;
    ///         forward: put take take_id settle expire_lease cancel reschedule get locate list peek stats forecast;
    ///         forward: queues ready configure revive deaths discard purge delete_queue;
    ///     }
    /// }
    /// ```
    pub struct EveryOperation {
        pub put: (),
        pub take: (),
        pub take_id: (),
        pub settle: (),
        pub expire_lease: (),
        pub cancel: (),
        pub reschedule: (),
        pub get: (),
        pub locate: (),
        pub list: (),
        pub peek: (),
        pub stats: (),
        pub forecast: (),
        pub queues: (),
        pub ready: (),
        pub configure: (),
        pub revive: (),
        pub deaths: (),
        pub discard: (),
        pub purge: (),
        pub delete_queue: (),
    }

    /// How a wrapper holds its inner store: directly, or shared.
    pub trait Within {
        /// The store.
        type Store: Store + ?Sized;

        /// The store.
        fn within(&self) -> &Self::Store;
    }

    impl<S: Store> Within for S {
        type Store = S;

        fn within(&self) -> &S {
            self
        }
    }

    impl<S: Store + ?Sized> Within for Arc<S> {
        type Store = S;

        fn within(&self) -> &S {
            self
        }
    }

    /// The store in a wrapper's field.
    pub fn store<W: Within>(field: &W) -> &W::Store {
        field.within()
    }
}

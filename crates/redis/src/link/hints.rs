//! Hints that something has changed: one subscription for all listeners of a link. A lost hint costs time, never a
//! message: a take that waits asks again by itself.
//!
//! Every request on the connection has a timeout: a half-open link answers nothing, and takes that wait would hang on
//! it. A silent connection is pinged now and then. Requests that arrive meanwhile are sent together, so that one
//! behind many waits for one answer and not for one each.
//!
//! A channel that a user may not subscribe to is refused to its listeners, and does not affect other channels.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use redis::{RedisError, RedisResult};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use super::{Inner, Link, nobody};

/// A request to the listening task: a channel, the listener to notify, and whether to subscribe or to leave.
struct HintRequest {
    channel: String,
    waiting: Arc<Notify>,
    /// `Some` to subscribe: answered when that is done, or with the reason why it fails for now. `None` to leave.
    listen: Option<oneshot::Sender<RedisResult<()>>>,
}

/// The handle of the listening task, which begins with the first listener and ends with the link.
#[derive(Default)]
pub(super) struct Hints(Mutex<Option<mpsc::UnboundedSender<HintRequest>>>);

const RETRY: Duration = Duration::from_millis(250);

/// How often a silent connection is pinged.
const PING: Duration = Duration::from_secs(10);

/// The maximum number of channels per subscription command, and of requests that are collected before it.
const CHANNELS: usize = 256;
const WISHES: usize = 1_024;

/// A channel that is subscribed to for as long as this exists. All ears of a [`Link`] share one connection.
pub struct Ear {
    link: Link,
    channel: String,
    waiting: Arc<Notify>,
}

impl Ear {
    /// An ear that receives nothing before it [listens](Ear::listen).
    pub fn new(link: &Link, channel: String) -> Ear {
        Ear { link: link.clone(), channel, waiting: Arc::default() }
    }

    /// Completes when the channel is subscribed to. When its connection is lost, another one is made automatically.
    ///
    /// # Errors
    /// It fails for now; a further call tries again.
    pub async fn listen(&self) -> RedisResult<()> {
        self.link.listen(self.channel.clone(), Arc::clone(&self.waiting)).await
    }

    /// Completes when a message has arrived on the channel, or may have.
    pub async fn heard(&self) {
        self.waiting.notified().await;
    }
}

impl std::fmt::Debug for Ear {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ear").field("channel", &self.channel).finish_non_exhaustive()
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.link.leave(std::mem::take(&mut self.channel), Arc::clone(&self.waiting));
    }
}

impl Link {
    /// Completes when the channel is subscribed to; `waiting` is notified of each message until it leaves the
    /// channel.
    ///
    /// Where the subscription fails for now, it is made as soon as possible, and `waiting` is notified of that; this
    /// holds even if the future is dropped.
    ///
    /// # Errors
    /// Those of the connection; and the server's, if the user may not subscribe to the channel: then it is not
    /// retried.
    pub(crate) async fn listen(&self, channel: String, waiting: Arc<Notify>) -> RedisResult<()> {
        let (sender, heard) = oneshot::channel();
        {
            let mut wishes = self.0.hints.0.lock().unwrap_or_else(PoisonError::into_inner);
            // The task ends with its runtime too.
            if wishes.as_ref().is_none_or(mpsc::UnboundedSender::is_closed) {
                let (wish, asked) = mpsc::unbounded_channel();
                tokio::spawn(listen(Arc::downgrade(&self.0), self.address().timeout(), asked));
                *wishes = Some(wish);
            }
            if let Some(wishes) = &*wishes {
                // A task that has ended drops its requests, which answers them.
                let _ = wishes.send(HintRequest { channel, waiting, listen: Some(sender) });
            }
        }
        heard.await.unwrap_or_else(|_| Err(nobody()))
    }

    /// `waiting` is no longer notified of the channel.
    pub(crate) fn leave(&self, channel: String, waiting: Arc<Notify>) {
        if let Some(wishes) = &*self.0.hints.0.lock().unwrap_or_else(PoisonError::into_inner) {
            // If the task has ended, nothing is subscribed to any more.
            let _ = wishes.send(HintRequest { channel, waiting, listen: None });
        }
    }
}

type HintLine = (PubSubSink, PubSubStream);

/// The listeners of a channel.
#[derive(Default)]
struct Channel {
    waiting: Vec<Arc<Notify>>,
    /// The current connection has subscribed to it.
    is_heard: bool,
}

struct Task {
    link: Weak<Inner>,
    limit: Duration,
    channels: HashMap<String, Channel>,
    line: Option<HintLine>,
}

async fn listen(link: Weak<Inner>, limit: Duration, mut asked: mpsc::UnboundedReceiver<HintRequest>) {
    let mut task = Task { link, limit, channels: HashMap::new(), line: None };
    let mut wishes = Vec::new();
    let mut pings = tokio::time::interval(PING);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if task.line.is_none() && !task.channels.is_empty() {
            // It is retried.
            let _ = task.connect().await;
        }
        let retry = task.line.is_none() && !task.channels.is_empty();
        tokio::select! {
            heard = asked.recv_many(&mut wishes, WISHES) => match heard {
                0 => return,
                _ => task.grant(&mut wishes).await,
            },
            message = next(&mut task.line) => match message {
                Some(channel) => {
                    let channel = task.channels.get(&channel);
                    channel.into_iter().for_each(Channel::notify);
                }
                None => task.line = None,
            },
            _ = pings.tick(), if task.line.is_some() => {
                if let Some((sink, _)) = &mut task.line
                    && within(limit, sink.ping::<redis::Value>()).await.is_err()
                {
                    task.line = None;
                }
            }
            () = tokio::time::sleep(RETRY), if retry => {}
        }
    }
}

impl Channel {
    fn notify(&self) {
        self.waiting.iter().for_each(|waiting| waiting.notify_one());
    }
}

impl Task {
    /// Carries out all requests together, and answers them.
    async fn grant(&mut self, wishes: &mut Vec<HintRequest>) {
        let mut heard = Vec::new();
        let mut changed = HashSet::new();
        for HintRequest { channel, waiting, listen } in wishes.drain(..) {
            match listen {
                Some(sender) => {
                    let entry = self.channels.entry(channel.clone()).or_default();
                    if !entry.waiting.iter().any(|other| Arc::ptr_eq(other, &waiting)) {
                        entry.waiting.push(Arc::clone(&waiting));
                    }
                    heard.push((channel.clone(), waiting, sender));
                }
                None => {
                    if let Some(entry) = self.channels.get_mut(&channel) {
                        entry.waiting.retain(|other| !Arc::ptr_eq(other, &waiting));
                    }
                }
            }
            changed.insert(channel);
        }
        self.leave(&changed).await;
        let failed = self.join(&changed).await.err();
        for (channel, waiting, sender) in heard {
            let is_heard = self.channels.get(&channel).is_some_and(|entry| entry.is_heard);
            let error = || failed.clone().unwrap_or_else(nobody);
            let is_answered = sender.send(if is_heard { Ok(()) } else { Err(error()) }).is_ok();
            if is_heard && !is_answered {
                // A listener that has not waited for it has asked without hints.
                waiting.notify_one();
            }
        }
    }

    /// Subscribes to those of some channels that have listeners.
    async fn join(&mut self, changed: &HashSet<String>) -> RedisResult<()> {
        if self.line.is_none() && !self.channels.is_empty() {
            self.connect().await?;
        }
        // `connect` has subscribed to some of them already, or they were refused.
        let is_missing = |channel: &&String| {
            self.channels.get(*channel).is_some_and(|entry| !entry.waiting.is_empty() && !entry.is_heard)
        };
        let missing: Vec<String> = changed.iter().filter(is_missing).cloned().collect();
        let mut refused = Ok(());
        for some in missing.chunks(CHANNELS) {
            let subscribed = self.subscribe(some.to_vec()).await;
            if self.line.is_none() {
                return subscribed;
            }
            refused = refused.and(subscribed);
        }
        refused
    }

    /// Unsubscribes from those of some channels that have no listeners any more.
    async fn leave(&mut self, changed: &HashSet<String>) {
        let mut left = Vec::new();
        for channel in changed {
            if let Some(entry) = self.channels.get(channel)
                && entry.waiting.is_empty()
            {
                if entry.is_heard {
                    left.push(channel.clone());
                }
                self.channels.remove(channel);
            }
        }
        for some in left.chunks(CHANNELS) {
            // A user who may not unsubscribe goes on receiving messages, which are ignored.
            if let Some((sink, _)) = &mut self.line
                && within(self.limit, sink.unsubscribe(some)).await.is_err_and(|error| !is_refusal(&error))
            {
                self.line = None;
            }
        }
    }

    /// Makes the connection again, and subscribes to all channels with listeners.
    async fn connect(&mut self) -> RedisResult<()> {
        self.line = None;
        self.channels.values_mut().for_each(|channel| channel.is_heard = false);
        let connected = async {
            let link = Link(self.link.upgrade().ok_or_else(nobody)?);
            RedisResult::Ok(link.subscriber().await?.split())
        };
        self.line = Some(within(self.limit, connected).await?);
        let channels: Vec<_> = self.channels.keys().cloned().collect();
        for some in channels.chunks(CHANNELS) {
            let subscribed = self.subscribe(some.to_vec()).await;
            // The refused ones are found by subscribing one by one.
            if let Err(error) = subscribed
                && self.line.is_none()
            {
                return Err(error);
            }
        }
        // Hints may have been lost meanwhile.
        self.channels.values().for_each(Channel::notify);
        Ok(())
    }

    /// Subscribes to some channels at once, and to each separately if one of them is refused. If there is no
    /// connection afterwards, it was lost.
    async fn subscribe(&mut self, channels: Vec<String>) -> RedisResult<()> {
        let Some((sink, _)) = &mut self.line else { return Err(nobody()) };
        let mut refusal = None;
        let (mut heard, limit) = (Vec::new(), self.limit);
        let subscribed = within(limit, sink.subscribe(&channels)).await;
        match subscribed {
            Ok(()) => heard = channels,
            Err(error) if is_refusal(&error) && channels.len() > 1 => {
                for channel in channels {
                    match within(limit, sink.subscribe(&channel)).await {
                        Ok(()) => heard.push(channel),
                        Err(error) if is_refusal(&error) => refusal = Some(error),
                        Err(error) => {
                            self.line = None;
                            return Err(error);
                        }
                    }
                }
            }
            Err(error) if is_refusal(&error) => refusal = Some(error),
            Err(error) => {
                self.line = None;
                return Err(error);
            }
        }
        for channel in heard {
            if let Some(entry) = self.channels.get_mut(&channel) {
                entry.is_heard = true;
            }
        }
        refusal.map_or(Ok(()), Err)
    }
}

/// Whether the server has answered, and the connection is still good.
fn is_refusal(error: &RedisError) -> bool {
    error.code().is_some()
}

async fn within<T>(limit: Duration, asked: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    tokio::time::timeout(limit, asked).await.unwrap_or_else(|_| Err(nobody()))
}

/// The channel of the next message; `None` when the connection is lost. Without a connection it never completes.
async fn next(line: &mut Option<HintLine>) -> Option<String> {
    match line {
        Some((_, stream)) => Some(stream.next().await?.get_channel_name().to_owned()),
        None => std::future::pending().await,
    }
}

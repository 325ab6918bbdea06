//! Hints that something has changed: one subscription for all who hear by a link. A hint that is lost costs time, never a
//! message: whoever waits asks again by itself.
//!
//! Whatever is asked of the connection is asked with a limit: a link that is half open answers nothing, and takes that
//! wait would hang on it. One that is silent is asked now and then whether it is there at all.
//!
//! A channel that a user may not hear is refused to whoever wants it, and keeps nobody from the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use redis::{RedisError, RedisResult};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use super::{Inner, Link, nobody};

/// What the listening task is told.
enum Wish {
    /// Notify whoever waits when something comes on this channel; and say when that is so, or why it is not for now.
    Listen(String, Arc<Notify>, oneshot::Sender<RedisResult<()>>),
    /// It need not be notified of the channel any more.
    Leave(String, Arc<Notify>),
}

/// The listening task, from outside. It begins when somebody wants to hear something, and ends with the link.
#[derive(Default)]
pub(super) struct Hints(Mutex<Option<mpsc::UnboundedSender<Wish>>>);

const RETRY: Duration = Duration::from_millis(250);

/// How often the connection is asked whether it is there.
const PING: Duration = Duration::from_secs(10);

/// How many channels are asked for at once.
const CHANNELS: usize = 256;

/// A channel that is listened to, as long as this is there.
pub(crate) struct Ear {
    link: Link,
    channel: String,
    waiting: Arc<Notify>,
}

impl Ear {
    pub(crate) fn new(link: &Link, channel: String) -> Ear {
        Ear { link: link.clone(), channel, waiting: Arc::default() }
    }

    /// Ends when the channel is listened to. When its connection is lost another one is made without more ado.
    ///
    /// # Errors
    /// It can not be for now: asked again, it is tried again.
    pub(crate) async fn listen(&self) -> RedisResult<()> {
        self.link.listen(self.channel.clone(), Arc::clone(&self.waiting)).await
    }

    /// Ends when something has come on the channel, or may have.
    pub(crate) async fn heard(&self) {
        self.waiting.notified().await;
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.link.leave(std::mem::take(&mut self.channel), Arc::clone(&self.waiting));
    }
}

impl Link {
    /// Ends when the channel is listened to; `waiting` is notified of all that comes until it leaves the channel. Where it
    /// can not be listened to for now it is as soon as it can be.
    ///
    /// # Errors
    /// Those of the connection; and the server's, to whom may not hear the channel: then it is not tried again.
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
                // A task that has ended drops what it was told, and so answers.
                let _ = wishes.send(Wish::Listen(channel, waiting, sender));
            }
        }
        heard.await.unwrap_or_else(|_| Err(nobody()))
    }

    /// `waiting` is not notified of the channel any more.
    pub(crate) fn leave(&self, channel: String, waiting: Arc<Notify>) {
        if let Some(wishes) = &*self.0.hints.0.lock().unwrap_or_else(PoisonError::into_inner) {
            // Nobody listens any more if the task has ended.
            let _ = wishes.send(Wish::Leave(channel, waiting));
        }
    }
}

type Line = (PubSubSink, PubSubStream);

/// Who waits for something on a channel.
#[derive(Default)]
struct Channel {
    waiting: Vec<Arc<Notify>>,
    /// The connection that there is has subscribed to it.
    is_heard: bool,
}

struct Task {
    link: Weak<Inner>,
    limit: Duration,
    channels: HashMap<String, Channel>,
    line: Option<Line>,
}

async fn listen(link: Weak<Inner>, limit: Duration, mut wishes: mpsc::UnboundedReceiver<Wish>) {
    let mut task = Task { link, limit, channels: HashMap::new(), line: None };
    let mut pings = tokio::time::interval(PING);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if task.line.is_none() && !task.channels.is_empty() {
            // It is tried again.
            let _ = task.connect().await;
        }
        let retry = task.line.is_none() && !task.channels.is_empty();
        tokio::select! {
            wish = wishes.recv() => match wish {
                None => return,
                Some(Wish::Listen(channel, waiting, heard)) => {
                    let listened = task.add(channel, waiting).await;
                    let _ = heard.send(listened);
                }
                Some(Wish::Leave(channel, waiting)) => task.remove(channel, &waiting).await,
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
    async fn add(&mut self, channel: String, waiting: Arc<Notify>) -> RedisResult<()> {
        let entry = self.channels.entry(channel.clone()).or_default();
        if !entry.waiting.iter().any(|other| Arc::ptr_eq(other, &waiting)) {
            entry.waiting.push(waiting);
        }
        if self.line.is_none() {
            self.connect().await?;
            // It has come with the others, or it was refused.
            if self.channels.get(&channel).is_some_and(|entry| entry.is_heard) {
                return Ok(());
            }
        }
        match self.channels.get(&channel) {
            Some(entry) if entry.is_heard => Ok(()),
            _ => self.subscribe(vec![channel]).await,
        }
    }

    /// Leaves the channel, unless somebody else listens.
    async fn remove(&mut self, channel: String, waiting: &Arc<Notify>) {
        let Some(entry) = self.channels.get_mut(&channel) else { return };
        entry.waiting.retain(|other| !Arc::ptr_eq(other, waiting));
        if !entry.waiting.is_empty() {
            return;
        }
        let was_heard = entry.is_heard;
        self.channels.remove(&channel);
        // Whoever may not leave a channel hears it on, and passes it over.
        if let (true, Some((sink, _))) = (was_heard, &mut self.line)
            && within(self.limit, sink.unsubscribe(&channel)).await.is_err_and(|error| !is_refusal(&error))
        {
            self.line = None;
        }
    }

    /// Makes the connection anew, and subscribes to all that are wanted.
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
            // Which of them are refused is looked up one by one.
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

    /// Subscribes to some channels at once, and to each by itself where one of them is refused. Without a connection
    /// afterwards it was lost.
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

/// Whether the server has answered, and the connection is as good as before.
fn is_refusal(error: &RedisError) -> bool {
    error.code().is_some()
}

async fn within<T>(limit: Duration, asked: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    tokio::time::timeout(limit, asked).await.unwrap_or_else(|_| Err(nobody()))
}

/// The channel of the next message; `None` when the connection is lost. Without one it never ends.
async fn next(line: &mut Option<Line>) -> Option<String> {
    match line {
        Some((_, stream)) => Some(stream.next().await?.get_channel_name().to_owned()),
        None => std::future::pending().await,
    }
}

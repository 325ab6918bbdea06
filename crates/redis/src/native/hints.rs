//! Hints that something has changed: one subscription for a store. A hint that is lost costs time, never a message:
//! whoever waits asks again by itself.
//!
//! Whatever is asked of the connection is asked with a limit: a link that is half open answers nothing, and takes that
//! wait would hang on it. One that is silent is asked now and then whether it is there at all.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::RedisResult;
use redis::aio::{PubSubSink, PubSubStream};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use crate::Link;

/// What the listening task is told.
enum Wish {
    /// Notify whoever waits when something comes on this channel; and say when that is so.
    Listen(String, Arc<Notify>, oneshot::Sender<()>),
    /// Leave the channel, unless somebody else listens by now.
    Leave(String, Arc<Notify>),
}

/// The listening task, from outside.
pub(super) struct Hints {
    wishes: std::sync::Mutex<Option<mpsc::UnboundedSender<Wish>>>,
}

const RETRY: Duration = Duration::from_millis(250);

/// How often the connection is asked whether it is there.
const PING: Duration = Duration::from_secs(10);

impl Hints {
    pub(super) fn start(link: Link, runtime: &Handle) -> Hints {
        let (sender, wishes) = mpsc::unbounded_channel();
        runtime.spawn(listen(link, wishes));
        Hints { wishes: std::sync::Mutex::new(Some(sender)) }
    }

    /// Ends when the channel is listened to, or can not be for now.
    pub(super) async fn listen(&self, channel: String, waiting: Arc<Notify>) {
        let (sender, heard) = oneshot::channel();
        self.wish(Wish::Listen(channel, waiting, sender));
        let _ = heard.await;
    }

    pub(super) fn leave(&self, channel: String, waiting: Arc<Notify>) {
        self.wish(Wish::Leave(channel, waiting));
    }

    pub(super) fn stop(&self) {
        super::wire::locked(&self.wishes).take();
    }

    fn wish(&self, wish: Wish) {
        if let Some(wishes) = &*super::wire::locked(&self.wishes) {
            // The task ends with the sender, and not before.
            let _ = wishes.send(wish);
        }
    }
}

type Line = (PubSubSink, PubSubStream);

async fn listen(link: Link, mut wishes: mpsc::UnboundedReceiver<Wish>) {
    let mut channels: HashMap<String, Arc<Notify>> = HashMap::new();
    let mut line: Option<Line> = None;
    let limit = link.address().timeout();
    let mut pings = tokio::time::interval(PING);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if line.is_none() && !channels.is_empty() {
            line = connect(&link, channels.keys()).await;
            // Hints may have been lost meanwhile.
            channels.values().for_each(|waiting| waiting.notify_one());
        }
        let retry = line.is_none() && !channels.is_empty();
        tokio::select! {
            wish = wishes.recv() => match wish {
                None => return,
                Some(Wish::Listen(channel, waiting, heard)) => {
                    channels.insert(channel.clone(), waiting);
                    let subscribed = match &mut line {
                        Some((sink, _)) => is_done(limit, sink.subscribe(&channel)).await,
                        None => {
                            line = connect(&link, channels.keys()).await;
                            line.is_some()
                        }
                    };
                    if !subscribed {
                        line = None;
                    }
                    let _ = heard.send(());
                }
                Some(Wish::Leave(channel, waiting)) => {
                    if !channels.get(&channel).is_some_and(|other| Arc::ptr_eq(other, &waiting)) {
                        continue;
                    }
                    channels.remove(&channel);
                    if let Some((sink, _)) = &mut line
                        && !is_done(limit, sink.unsubscribe(&channel)).await
                    {
                        line = None;
                    }
                }
            },
            message = next(&mut line) => match message {
                Some(channel) => {
                    if let Some(waiting) = channels.get(&channel) {
                        waiting.notify_one();
                    }
                }
                None => line = None,
            },
            _ = pings.tick(), if line.is_some() => {
                if let Some((sink, _)) = &mut line
                    && !is_done(limit, sink.ping::<redis::Value>()).await
                {
                    line = None;
                }
            }
            () = tokio::time::sleep(RETRY), if retry => {}
        }
    }
}

async fn connect(link: &Link, channels: impl Iterator<Item = &String>) -> Option<Line> {
    let subscribed = async {
        let (mut sink, stream) = link.subscriber().await?.split();
        for channel in channels {
            sink.subscribe(channel).await?;
        }
        RedisResult::Ok((sink, stream))
    };
    tokio::time::timeout(link.address().timeout(), subscribed).await.ok()?.ok()
}

async fn is_done<T>(limit: Duration, asked: impl Future<Output = RedisResult<T>>) -> bool {
    matches!(tokio::time::timeout(limit, asked).await, Ok(Ok(_)))
}

/// The channel of the next message; `None` when the connection is lost. Without one it never ends.
async fn next(line: &mut Option<Line>) -> Option<String> {
    match line {
        Some((_, stream)) => Some(stream.next().await?.get_channel_name().to_owned()),
        None => std::future::pending().await,
    }
}

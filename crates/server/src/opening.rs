//! Between the opening of the listeners and that of the store: whoever asks already is answered honestly.
//!
//! Ground rules:
//! 1. A request over HTTP is answered with `503` and `Retry-After`, `GET /health/live` as ever.
//! 2. A connection that has asked nothing yet when the store is open is served like any other.
//! 3. beanstalkd's protocol has no word for it: connections wait, unread, until the store is open.

use std::future::Future;
use std::pin::pin;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::config::ServerConfig;
use crate::http;
use crate::listener::Listeners;
use crate::security::Tls;

/// So many connections are looked at meanwhile; further ones wait until one of them has been answered.
const MOST: usize = 1_024;

impl Listeners {
    /// Waits for `opening`, which opens the store, and meanwhile answers what is asked over HTTP.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn answer_while<T>(&mut self, config: &ServerConfig, opening: impl Future<Output = T>) -> T {
        let mut opening = pin!(opening);
        let (opened, is_opened) = watch::channel(false);
        let mut connections = JoinSet::new();
        let done = loop {
            tokio::select! {
                biased;
                done = &mut opening => break done,
                Some(_) = connections.join_next() => {}
                stream = self.http.next(), if connections.len() < MOST => {
                    connections.spawn(ask(stream, config.http.tls.clone(), is_opened.clone()));
                }
            }
        };
        opened.send_replace(true);
        while let Some(asked) = connections.join_next().await {
            self.early.extend(asked.ok().flatten());
        }
        done
    }
}

/// Answers the first request of `stream`; gives it back if none has come by the time the store is open.
async fn ask(stream: TcpStream, tls: Option<Tls>, mut is_opened: watch::Receiver<bool>) -> Option<TcpStream> {
    let mut first = [0];
    tokio::select! {
        biased;
        // One that has ended is answered by what follows, too.
        _ = stream.peek(&mut first) => {}
        _ = is_opened.wait_for(|opened| *opened) => return Some(stream),
    }
    // Not waited for: the server can serve others now.
    tokio::spawn(http::answer_opening(stream, tls));
    None
}

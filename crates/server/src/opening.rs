//! Answers requests between the opening of the listeners and that of the store.
//!
//! Ground rules:
//! 1. A request over HTTP is answered with `503` and `Retry-After`, `GET /health/live` as always.
//! 2. A connection that has sent nothing when the store is open is served like any other.
//! 3. Each connection has one of the server's permits until it ends. When none is left, the oldest connection is
//!    closed: one that sends a request is answered in a moment, so the oldest is one that stalls.
//! 4. beanstalkd's protocol has no reply for it: connections wait, unread, until the store is open.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;

use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::config::ServerConfig;
use crate::http;
use crate::listener::{Admitted, Listeners};
use crate::security::Tls;

/// A connection that has sent nothing by the time the store is open.
type Early = (TcpStream, Admitted);

/// Connections that were accepted before the store was open.
struct Comers {
    tls: Option<Tls>,
    is_opened: watch::Receiver<bool>,
    /// Returns connections that have sent nothing; each task has a sender until its connection sends something.
    back: mpsc::UnboundedSender<Early>,
    /// Each task returns its connection's number.
    tasks: JoinSet<u64>,
    /// Connections that have not ended, in the order of acceptance.
    open: BTreeMap<u64, AbortHandle>,
    comers: u64,
}

impl Listeners {
    /// Waits for `opening`, which opens the store, and meanwhile answers HTTP requests.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub async fn answer_while<T>(&mut self, config: &ServerConfig, opening: impl Future<Output = T>) -> T {
        let mut opening = pin!(opening);
        let (opened, is_opened) = watch::channel(false);
        let (back, mut early) = mpsc::unbounded_channel();
        let mut comers = Comers {
            tls: config.http.tls.clone(),
            is_opened,
            back,
            tasks: JoinSet::new(),
            open: BTreeMap::new(),
            comers: 0,
        };
        // One that waits for a permit.
        let mut next: Option<TcpStream> = None;
        let done = loop {
            if let Some(stream) = next.take() {
                match self.http.gate.admit() {
                    Some(place) => comers.admit(stream, place),
                    None => next = Some(stream),
                }
            }
            tokio::select! {
                biased;
                done = &mut opening => break done,
                Some(ended) = comers.tasks.join_next() => {
                    // One that was closed for another has left the list already.
                    if let Ok(which) = ended {
                        comers.open.remove(&which);
                    }
                }
                stream = self.http.next(), if next.is_none() => match self.http.gate.admit() {
                    Some(place) => comers.admit(stream, place),
                    None if comers.end_the_first() => next = Some(stream),
                    None => {
                        tokio::spawn(self.http.gate.clone().refuse(stream, comers.tls.is_none()));
                    }
                }
            }
        };
        opened.send_replace(true);
        let Comers { back, mut tasks, .. } = comers;
        drop(back);
        while let Some(asked_nothing) = early.recv().await {
            self.early.push(asked_nothing);
        }
        // They are not waited for: the server can serve others now.
        tasks.detach_all();
        done
    }
}

impl Comers {
    fn admit(&mut self, stream: TcpStream, place: Admitted) {
        let which = self.comers;
        self.comers += 1;
        let (tls, back, mut is_opened) = (self.tls.clone(), self.back.clone(), self.is_opened.clone());
        let task = async move {
            let mut first = [0];
            tokio::select! {
                biased;
                // One that has ended is handled by what follows, too.
                _ = stream.peek(&mut first) => {}
                _ = is_opened.wait_for(|opened| *opened) => {
                    // The receiver is dropped where the opening was abandoned.
                    let _ = back.send((stream, place));
                    return which;
                }
            }
            drop(back);
            http::answer_opening(stream, tls).await;
            drop(place);
            which
        };
        self.open.insert(which, self.tasks.spawn(task));
    }

    /// Closes the oldest connection; false if there is none.
    fn end_the_first(&mut self) -> bool {
        while let Some((_, first)) = self.open.pop_first() {
            if !first.is_finished() {
                first.abort();
                return true;
            }
        }
        false
    }
}

//! Between the opening of the listeners and that of the store: whoever asks already is answered honestly.
//!
//! Ground rules:
//! 1. A request over HTTP is answered with `503` and `Retry-After`, `GET /health/live` as ever.
//! 2. A connection that has asked nothing yet when the store is open is served like any other.
//! 3. Each connection has one of the places that the server's connections have, until it ends. Where there is none left, the
//!    one that came first makes place: who comes and asks is answered in a moment, so that it is one that stalls.
//! 4. beanstalkd's protocol has no word for it: connections wait, unread, until the store is open.

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

/// A connection that has asked nothing by the time the store is open.
type Early = (TcpStream, Admitted);

/// Connections that came before the store was open.
struct Comers {
    tls: Option<Tls>,
    is_opened: watch::Receiver<bool>,
    /// Where those are handed back that ask nothing; each has a sender until it asks.
    back: mpsc::UnboundedSender<Early>,
    /// Each says which it was.
    tasks: JoinSet<u64>,
    /// Those that have not ended, in the order of their coming.
    open: BTreeMap<u64, AbortHandle>,
    comers: u64,
}

impl Listeners {
    /// Waits for `opening`, which opens the store, and meanwhile answers what is asked over HTTP.
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
        // One for which a place is being made.
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
                    // One that was ended to make place has left the list already.
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
                // One that has ended is answered by what follows, too.
                _ = stream.peek(&mut first) => {}
                _ = is_opened.wait_for(|opened| *opened) => {
                    // Nobody takes it back where the opening was given up.
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

    /// Ends the connection that came first; false if there is none.
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

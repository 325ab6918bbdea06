//! A link to a Redis that a test can cut, stall, make drop one direction, or make repeat commands: a TCP proxy in the
//! test's process. It counts the commands in flight.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How the link treats the data sent over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Everything is forwarded.
    Whole,
    /// Connections are closed, and so is each new one.
    Cut,
    /// Nothing is forwarded until the link is whole again, and then everything is, including requests that a client has
    /// given up by then.
    Stalled,
    /// Half open: data from clients is lost.
    Deaf,
    /// Half open the other way: replies of the server are lost.
    Mute,
    /// Only data on subscribed connections is lost.
    NoHints,
}

/// The options of a proxy.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Selects the requests that can be stopped, and those whose replies can be lost: by default scripts on the
    /// partitions of a store.
    pub watches: fn(&[u8]) -> bool,
    /// Forwards requests and replies value by value instead of as they come, and counts the commands in flight.
    pub by_value: bool,
    /// Selects the commands that are sent twice in a row, with the first reply withheld from the client; `by_value`
    /// only.
    pub repeats: fn(&[u8]) -> bool,
}

impl Default for Options {
    fn default() -> Options {
        // The store itself announces its presence in the directory now and then, which no caller waits for.
        let watches = |request: &[u8]| contains(request, b"dwell:{");
        Options { watches, by_value: false, repeats: |_| false }
    }
}

/// The proxy. It ends with the test's runtime.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<ProxyShared>,
}

struct ProxyShared {
    options: Options,
    link: watch::Sender<Link>,
    /// The number of replies to watched requests to forward before one is lost with its connection; negative: none.
    pass: AtomicI64,
    /// Whether the reply that is lost is forwarded to its middle.
    halves: AtomicBool,
    /// The number of watched requests to forward before one is stopped; negative: none.
    stop_after: AtomicI64,
    /// Whether a request is stopped.
    stopped: watch::Sender<bool>,
    /// The number of connections so far.
    connections: AtomicU64,
    /// Data from clients is held back on connections up to this number, and forwarded when it is released.
    held: watch::Sender<u64>,
    /// The number of connections on which data is held back.
    holding: watch::Sender<u64>,
    /// The number of commands in flight, and its maximum.
    under_way: AtomicI64,
    most_under_way: AtomicI64,
}

impl Proxy {
    /// Creates a proxy for the server at this port of 127.0.0.1.
    pub async fn to(port: u16) -> Proxy {
        Proxy::with(port, Options::default()).await
    }

    /// As [`to`](Proxy::to), with options.
    pub async fn with(port: u16, options: Options) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(ProxyShared {
            options,
            link: watch::Sender::new(Link::Whole),
            pass: AtomicI64::new(-1),
            halves: AtomicBool::new(false),
            stop_after: AtomicI64::new(-1),
            stopped: watch::Sender::new(false),
            connections: AtomicU64::new(0),
            held: watch::Sender::new(0),
            holding: watch::Sender::new(0),
            under_way: AtomicI64::new(0),
            most_under_way: AtomicI64::new(0),
        });
        tokio::spawn(accept(listener, port, Arc::clone(&shared)));
        Proxy { address, shared }
    }

    /// A URL through it, with these options.
    pub fn url(&self, options: &str) -> String {
        format!("redis://{}?{options}", self.address)
    }

    /// The port on 127.0.0.1 that it listens on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sets how the link treats data from now on.
    pub fn set(&self, link: Link) {
        self.shared.link.send_replace(link);
    }

    /// Makes the reply to the next watched request be lost with its connection. The request is executed.
    pub fn lose_next_reply(&self) {
        self.lose_reply_after(0);
    }

    /// Makes the connection end in the middle of the reply to the next watched request. The request is executed.
    pub fn cut_next_reply(&self) {
        self.shared.halves.store(true, Ordering::SeqCst);
        self.lose_next_reply();
    }

    /// As [`lose_next_reply`](Proxy::lose_next_reply), after `answers` replies.
    pub fn lose_reply_after(&self, answers: i64) {
        self.shared.pass.store(answers, Ordering::SeqCst);
    }

    /// Whether the reply that was to be lost is lost.
    pub fn has_lost(&self) -> bool {
        self.shared.pass.load(Ordering::SeqCst) < 0
    }

    /// Lets `requests` watched requests pass, and stops the next one and everything behind it until
    /// [`go_on`](Proxy::go_on).
    pub fn stop_request_after(&self, requests: i64) {
        self.shared.stopped.send_replace(false);
        self.shared.stop_after.store(requests, Ordering::SeqCst);
    }

    /// Waits until a request is stopped.
    pub async fn stopped(&self) {
        self.shared.stopped.subscribe().wait_for(|stopped| *stopped).await.expect("the sender is here");
    }

    /// Forwards what was stopped.
    pub fn go_on(&self) {
        self.shared.stopped.send_replace(false);
    }

    /// Holds back the data that clients send on the existing connections until [`release`](Proxy::release), including
    /// requests that they give up.
    pub fn hold_connections(&self) {
        self.shared.held.send_replace(self.connections());
    }

    /// Forwards the data that was held back, and waits until the server has received it all.
    pub async fn release(&self) {
        assert!(*self.shared.holding.borrow() > 0, "something was held up");
        self.shared.held.send_replace(0);
        self.shared.holding.subscribe().wait_for(|holding| *holding == 0).await.expect("the sender is here");
    }

    /// The number of connections made through it so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// The maximum number of commands in flight since the last call of this function, over all connections.
    pub fn most_under_way(&self) -> i64 {
        self.shared.most_under_way.swap(0, Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, port: u16, shared: Arc<ProxyShared>) {
    while let Ok((client, _)) = listener.accept().await {
        let number = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
        if *shared.link.borrow() == Link::Cut {
            continue;
        }
        let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
        // The options are best effort: a failure needs no report.
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        tokio::spawn(carry(number, client, server, Arc::clone(&shared)));
    }
}

/// The use of one connection.
#[derive(Default)]
struct Use {
    /// The last request was a watched one.
    is_watched: AtomicBool,
    /// It has subscribed, so data from the server is not a reply.
    has_subscribed: AtomicBool,
    /// For each expected reply, whether it is the first one of a command that was sent twice.
    is_first: Mutex<VecDeque<bool>>,
}

async fn carry(number: u64, client: TcpStream, server: TcpStream, shared: Arc<ProxyShared>) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let used = Use::default();
    let mut link = shared.link.subscribe();
    let mut holding = Holding { shared: &shared, holds: false };
    tokio::select! {
        () = requests(number, from_client, to_server, &mut holding, &used) => {}
        () = replies(from_server, to_client, &shared, &used) => {}
        _ = link.wait_for(|link| *link == Link::Cut) => {}
    }
}

/// Counts a connection on which data is held back, until it has ended.
struct Holding<'a> {
    shared: &'a ProxyShared,
    holds: bool,
}

impl Holding<'_> {
    fn begin(&mut self) {
        if !std::mem::replace(&mut self.holds, true) {
            self.shared.holding.send_modify(|holding| *holding += 1);
        }
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        if self.holds {
            self.shared.holding.send_modify(|holding| *holding -= 1);
        }
    }
}

async fn requests(
    number: u64,
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    holding: &mut Holding<'_>,
    used: &Use,
) {
    let shared = holding.shared;
    let Options { watches, by_value, repeats } = shared.options;
    let mut pieces = Pieces::of(from, by_value);
    let mut held_up = Vec::new();
    while let Some(piece) = pieces.next().await {
        let is_watched = watches(&piece);
        used.is_watched.store(is_watched, Ordering::SeqCst);
        let head = if by_value { &piece[..piece.len().min(40)] } else { &piece[..] };
        if contains(head, b"SUBSCRIBE") {
            used.has_subscribed.store(true, Ordering::SeqCst);
        }
        if is_watched
            && shared.stop_after.load(Ordering::SeqCst) >= 0
            && shared.stop_after.fetch_sub(1, Ordering::SeqCst) == 0
        {
            shared.stopped.send_replace(true);
            let _ = shared.stopped.subscribe().wait_for(|stopped| !*stopped).await;
        }
        if *shared.held.borrow() >= number {
            holding.begin();
            held_up.extend_from_slice(&piece);
            continue;
        }
        let times = if by_value { used.sent(repeats(&piece), shared) } else { 1 };
        if arrives(shared, |link| link != Link::Deaf).await && !write(&to, &piece.repeat(times)).await {
            return;
        }
    }
    if holding.holds {
        // Its client has given up. The connection ends when the server has read everything and closes it.
        let released = shared.held.subscribe().wait_for(|held| *held < number).await.is_ok();
        assert!(released && write(&to, &held_up).await);
        // This closes the sending direction alone.
        drop(to);
        std::future::pending::<()>().await;
    }
}

async fn replies(from: OwnedReadHalf, to: OwnedWriteHalf, shared: &ProxyShared, used: &Use) {
    let by_value = shared.options.by_value;
    let mut pieces = Pieces::of(from, by_value);
    while let Some(piece) = pieces.next().await {
        let has_subscribed = used.has_subscribed.load(Ordering::SeqCst);
        if by_value && !has_subscribed && used.is_first_answer(shared) {
            continue;
        }
        if used.is_watched.load(Ordering::SeqCst)
            && shared.pass.load(Ordering::SeqCst) >= 0
            && shared.pass.fetch_sub(1, Ordering::SeqCst) == 0
        {
            if shared.halves.swap(false, Ordering::SeqCst) {
                write(&to, &piece[..piece.len() / 2]).await;
            }
            return;
        }
        let heard = |link| link != Link::Mute && (link != Link::NoHints || !has_subscribed);
        if arrives(shared, heard).await && !write(&to, &piece).await {
            return;
        }
    }
}

impl Use {
    /// Records that a command is sent. Returns how many times to send it.
    fn sent(&self, is_repeated: bool, shared: &ProxyShared) -> usize {
        let times = if is_repeated { 2 } else { 1 };
        if !self.has_subscribed.load(Ordering::SeqCst) {
            let mut is_first = self.is_first.lock().expect("nobody panics with it");
            is_first.extend((1..=times).map(|time| time < times));
            let now = shared.under_way.fetch_add(1, Ordering::SeqCst) + 1;
            shared.most_under_way.fetch_max(now, Ordering::SeqCst);
        }
        times
    }

    /// Records a reply. Returns whether it is withheld from the client, since the command was sent twice.
    fn is_first_answer(&self, shared: &ProxyShared) -> bool {
        let is_first = self.is_first.lock().expect("nobody panics with it").pop_front() == Some(true);
        shared.under_way.fetch_sub(i64::from(!is_first), Ordering::SeqCst);
        is_first
    }
}

/// The data of one direction of a connection, as it comes or value by value.
struct Pieces {
    from: OwnedReadHalf,
    by_value: bool,
    bytes: Vec<u8>,
    /// The buffer for the next read.
    space: Vec<u8>,
}

impl Pieces {
    fn of(from: OwnedReadHalf, by_value: bool) -> Pieces {
        Pieces { from, by_value, bytes: Vec::new(), space: vec![0; 64 * 1024] }
    }

    /// The next piece; `None` at the end.
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let whole = (!self.bytes.is_empty()).then_some(self.bytes.len());
            let len = if self.by_value { value_len(&self.bytes) } else { whole };
            if let Some(len) = len {
                return Some(self.bytes.drain(..len).collect());
            }
            match read(&self.from, &mut self.space).await {
                0 => return None,
                read => self.bytes.extend_from_slice(&self.space[..read]),
            }
        }
    }
}

/// The length of the first complete value in these bytes.
/// <https://redis.io/docs/latest/develop/reference/protocol-spec/>
fn value_len(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(2).position(|two| two == b"\r\n")? + 2;
    let count = || std::str::from_utf8(&bytes[1..head - 2]).ok()?.parse::<i64>().ok();
    let items = match bytes[0] {
        b'$' | b'=' | b'!' => {
            // A negative length stands for a null.
            let end = usize::try_from(count()?).map_or(head, |len| head + len + 2);
            return (end <= bytes.len()).then_some(end);
        }
        b'*' | b'~' | b'>' => count()?,
        b'%' => 2 * count()?,
        _ => 0,
    };
    (0..items).try_fold(head, |at, _| Some(at + value_len(&bytes[at..])?))
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|some| some == word)
}

/// The number of bytes read; 0 at the end.
async fn read(from: &OwnedReadHalf, bytes: &mut [u8]) -> usize {
    while from.readable().await.is_ok() {
        match from.try_read(bytes) {
            Ok(read) => return read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    0
}

/// Whether all bytes were sent.
async fn write(to: &OwnedWriteHalf, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() && to.writable().await.is_ok() {
        match to.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    bytes.is_empty()
}

/// Whether data in transit now is forwarded. Does not return while the link is stalled.
async fn arrives(shared: &ProxyShared, passes: impl Fn(Link) -> bool) -> bool {
    let mut link = shared.link.subscribe();
    let now = link.wait_for(|link| *link != Link::Stalled).await;
    // What was read when the link was mute must not be written once it is cut, before its connection ends.
    now.is_ok_and(|link| *link != Link::Cut && passes(*link))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_as_long_as_it_says() {
        for whole in [
            "+OK\r\n",
            "$2\r\na\r\r\n",
            "$-1\r\n",
            "*2\r\n$1\r\na\r\n*0\r\n",
            "%1\r\n+a\r\n:1\r\n",
            ">2\r\n+message\r\n$0\r\n\r\n",
        ] {
            let more = format!("{whole}+next\r\n");
            assert_eq!(value_len(more.as_bytes()), Some(whole.len()), "{whole:?}");
            for len in 0..whole.len() {
                assert_eq!(value_len(&whole.as_bytes()[..len]), None, "{:?}", &whole[..len]);
            }
        }
    }
}

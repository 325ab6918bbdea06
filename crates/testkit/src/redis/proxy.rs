//! A link to a Redis that a test can cut, hold up, make lose what goes one way, or make repeat commands: a TCP proxy in
//! the test's process. It counts commands that are under way.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What becomes of what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// All of it arrives.
    Whole,
    /// Connections are closed, and so is each new one.
    Cut,
    /// Nothing arrives, and all of it does when the link is whole again: also what a client has given up by then.
    Stalled,
    /// Half open: nothing that clients send arrives, ever.
    Deaf,
    /// Half open the other way: what the server answers is lost.
    Mute,
    /// Only what comes on connections that have subscribed is lost.
    NoHints,
}

/// How a proxy is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Which requests are stopped, and which have answers that are lost: by default scripts on partitions of a store.
    pub watches: fn(&[u8]) -> bool,
    /// Requests and answers pass value by value, and not as they come. Then commands that are under way are counted.
    pub by_value: bool,
    /// Which commands are sent twice, one behind the other, the first answer kept from the client; `by_value` only.
    pub repeats: fn(&[u8]) -> bool,
}

impl Default for Options {
    fn default() -> Options {
        // The store itself says now and then, to the directory, that it is there: no caller hears of that.
        let watches = |request: &[u8]| contains(request, b"dwell:{");
        Options { watches, by_value: false, repeats: |_| false }
    }
}

/// The proxy; it ends with the test's runtime.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    options: Options,
    link: watch::Sender<Link>,
    /// How many replies to watched requests pass yet before one is lost with its connection; below 0 none is.
    pass: AtomicI64,
    /// How many watched requests pass yet before one is stopped; below 0 none is.
    stop_after: AtomicI64,
    /// One is stopped.
    stopped: watch::Sender<bool>,
    /// How often a connection was made.
    connections: AtomicU64,
    /// What clients send on connections up to this one is held up, and arrives when it is released.
    held: watch::Sender<u64>,
    /// On how many connections something is held up.
    holding: watch::Sender<u64>,
    /// How many commands are under way, and the most there were.
    under_way: AtomicI64,
    most_under_way: AtomicI64,
}

impl Proxy {
    /// Leads to the server at this port of 127.0.0.1.
    pub async fn to(port: u16) -> Proxy {
        Proxy::with(port, Options::default()).await
    }

    /// As [`to`](Proxy::to), with these options.
    pub async fn with(port: u16, options: Options) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared {
            options,
            link: watch::Sender::new(Link::Whole),
            pass: AtomicI64::new(-1),
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

    /// A URL that leads through it, with these options.
    pub fn url(&self, options: &str) -> String {
        format!("redis://{}?{options}", self.address)
    }

    /// Where it listens on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// From now on the link is so.
    pub fn set(&self, link: Link) {
        self.shared.link.send_replace(link);
    }

    /// The next watched request is carried out, and its answer and connection are lost.
    pub fn lose_next_reply(&self) {
        self.lose_reply_after(0);
    }

    /// The same after so many answers.
    pub fn lose_reply_after(&self, answers: i64) {
        self.shared.pass.store(answers, Ordering::SeqCst);
    }

    /// Whether the answer that was to be lost is lost.
    pub fn has_lost(&self) -> bool {
        self.shared.pass.load(Ordering::SeqCst) < 0
    }

    /// Lets so many watched requests pass and stops the next one on its way, with all behind it, until
    /// [`go_on`](Proxy::go_on).
    pub fn stop_request_after(&self, requests: i64) {
        self.shared.stopped.send_replace(false);
        self.shared.stop_after.store(requests, Ordering::SeqCst);
    }

    /// Waits until one is stopped.
    pub async fn stopped(&self) {
        self.shared.stopped.subscribe().wait_for(|stopped| *stopped).await.expect("the sender is here");
    }

    /// Lets what is stopped arrive.
    pub fn go_on(&self) {
        self.shared.stopped.send_replace(false);
    }

    /// Holds up what is sent from now on over the connections that there are, until [`release`](Proxy::release); also
    /// what their clients give up.
    pub fn hold_connections(&self) {
        self.shared.held.send_replace(self.connections());
    }

    /// Lets what was held up arrive, and waits until the server has had all of it.
    pub async fn release(&self) {
        assert!(*self.shared.holding.borrow() > 0, "something was held up");
        self.shared.held.send_replace(0);
        self.shared.holding.subscribe().wait_for(|holding| *holding == 0).await.expect("the sender is here");
    }

    /// How many connections were made through it so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// The most commands that were under way at a time since this was asked last, over all connections.
    pub fn most_under_way(&self) -> i64 {
        self.shared.most_under_way.swap(0, Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, port: u16, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let number = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
        if *shared.link.borrow() == Link::Cut {
            continue;
        }
        let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
        // One that fails has nobody to tell.
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        tokio::spawn(carry(number, client, server, Arc::clone(&shared)));
    }
}

/// What one connection is used for.
#[derive(Default)]
struct Use {
    /// The last request is a watched one.
    is_watched: AtomicBool,
    /// It has subscribed: what comes over it are no answers.
    has_subscribed: AtomicBool,
    /// Of each answer to come, whether it is the first one of a command that was sent twice.
    is_first: Mutex<VecDeque<bool>>,
}

async fn carry(number: u64, client: TcpStream, server: TcpStream, shared: Arc<Shared>) {
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

/// Counts a connection on which something is held up, until it has ended.
struct Holding<'a> {
    shared: &'a Shared,
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
        // Its client has given it up. The connection ends when the server has read all of it and closes.
        let released = shared.held.subscribe().wait_for(|held| *held < number).await.is_ok();
        assert!(released && write(&to, &held_up).await);
        // That ends what is sent, and nothing else.
        drop(to);
        std::future::pending::<()>().await;
    }
}

async fn replies(from: OwnedReadHalf, to: OwnedWriteHalf, shared: &Shared, used: &Use) {
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
            return;
        }
        let heard = |link| link != Link::Mute && (link != Link::NoHints || !has_subscribed);
        if arrives(shared, heard).await && !write(&to, &piece).await {
            return;
        }
    }
}

impl Use {
    /// A command is sent: how often.
    fn sent(&self, is_repeated: bool, shared: &Shared) -> usize {
        let times = if is_repeated { 2 } else { 1 };
        if !self.has_subscribed.load(Ordering::SeqCst) {
            let mut is_first = self.is_first.lock().expect("nobody panics with it");
            is_first.extend((1..=times).map(|time| time < times));
            let now = shared.under_way.fetch_add(1, Ordering::SeqCst) + 1;
            shared.most_under_way.fetch_max(now, Ordering::SeqCst);
        }
        times
    }

    /// An answer has come: whether it is kept from the client, since the command was sent twice.
    fn is_first_answer(&self, shared: &Shared) -> bool {
        let is_first = self.is_first.lock().expect("nobody panics with it").pop_front() == Some(true);
        shared.under_way.fetch_sub(i64::from(!is_first), Ordering::SeqCst);
        is_first
    }
}

/// What comes over one side of a connection, as it comes or value by value.
struct Pieces {
    from: OwnedReadHalf,
    by_value: bool,
    bytes: Vec<u8>,
    /// What the next bytes are read into.
    space: Vec<u8>,
}

impl Pieces {
    fn of(from: OwnedReadHalf, by_value: bool) -> Pieces {
        Pieces { from, by_value, bytes: Vec::new(), space: vec![0; 64 * 1024] }
    }

    /// The next piece; none at the end.
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

/// The length of the first whole value in these bytes. <https://redis.io/docs/latest/develop/reference/protocol-spec/>
fn value_len(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(2).position(|two| two == b"\r\n")? + 2;
    let count = || std::str::from_utf8(&bytes[1..head - 2]).ok()?.parse::<i64>().ok();
    let items = match bytes[0] {
        b'$' | b'=' | b'!' => {
            // A length below 0 says that there is none.
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

/// How many bytes came; 0 at the end.
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

/// Whether all of it was sent.
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

/// Whether something that is under way now arrives; not before the link stalls no more.
async fn arrives(shared: &Shared, passes: impl Fn(Link) -> bool) -> bool {
    let mut link = shared.link.subscribe();
    let now = link.wait_for(|link| *link != Link::Stalled).await;
    now.is_ok_and(|link| passes(*link))
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

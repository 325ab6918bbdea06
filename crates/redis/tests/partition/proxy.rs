//! A link to a Redis that a test can cut, hold up, or make lose what goes one way: a TCP proxy in the test's process.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What becomes of what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
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

/// The proxy; it ends with the test's runtime.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    link: watch::Sender<Link>,
    /// How many replies to scripts on partitions pass yet before one is lost with its connection; below 0 none is.
    pass: AtomicI64,
    /// How many requests for scripts on partitions pass yet before one is stopped; below 0 none is.
    stop_after: AtomicI64,
    /// One is stopped.
    stopped: watch::Sender<bool>,
    /// How often a connection was made.
    connections: AtomicU64,
    /// What clients send on connections up to this one is held up, and arrives when it is released.
    held: watch::Sender<u64>,
    /// On how many connections something is held up.
    holding: watch::Sender<u64>,
}

impl Proxy {
    /// Leads to the server at this port of 127.0.0.1.
    pub(crate) async fn to(port: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            link: watch::Sender::new(Link::Whole),
            pass: AtomicI64::new(-1),
            stop_after: AtomicI64::new(-1),
            stopped: watch::Sender::new(false),
            connections: AtomicU64::new(0),
            held: watch::Sender::new(0),
            holding: watch::Sender::new(0),
        });
        tokio::spawn(accept(listener, port, Arc::clone(&shared)));
        Proxy { address, shared }
    }

    /// A URL that leads through it, with these options.
    pub(crate) fn url(&self, options: &str) -> String {
        format!("redis://{}?{options}", self.address)
    }

    /// Where it listens on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// From now on the link is so.
    pub(crate) fn set(&self, link: Link) {
        self.shared.link.send_replace(link);
    }

    /// The next script is carried out, and its answer and connection are lost.
    pub(crate) fn lose_next_reply(&self) {
        self.lose_reply_after(0);
    }

    /// The same after so many answers.
    pub(crate) fn lose_reply_after(&self, answers: i64) {
        self.shared.pass.store(answers, Ordering::SeqCst);
    }

    /// Lets so many requests for scripts on partitions pass and stops the next one on its way, with all behind it, until
    /// [`go_on`](Proxy::go_on).
    pub(crate) fn stop_script_after(&self, requests: i64) {
        self.shared.stopped.send_replace(false);
        self.shared.stop_after.store(requests, Ordering::SeqCst);
    }

    /// Waits until one is stopped.
    pub(crate) async fn stopped(&self) {
        self.shared.stopped.subscribe().wait_for(|stopped| *stopped).await.unwrap();
    }

    /// Lets what is stopped arrive.
    pub(crate) fn go_on(&self) {
        self.shared.stopped.send_replace(false);
    }

    /// Holds up what is sent from now on over the connections that there are, until [`release`](Proxy::release); also
    /// what their clients give up.
    pub(crate) fn hold_connections(&self) {
        self.shared.held.send_replace(self.connections());
    }

    /// Lets what was held up arrive, and waits until the server has had all of it.
    pub(crate) async fn release(&self) {
        assert!(*self.shared.holding.borrow() > 0, "something was held up");
        self.shared.held.send_replace(0);
        self.shared.holding.subscribe().wait_for(|holding| *holding == 0).await.unwrap();
    }

    /// How many connections were made through it so far.
    pub(crate) fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
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

/// What one connection is used for: the last request was a script on a partition; it has subscribed.
#[derive(Clone, Copy, Default)]
struct Use {
    scripts: bool,
    subscriptions: bool,
}

async fn carry(number: u64, client: TcpStream, server: TcpStream, shared: Arc<Shared>) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let used = watch::Sender::new(Use::default());
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
    used: &watch::Sender<Use>,
) {
    let shared = holding.shared;
    let mut bytes = vec![0; 64 * 1024];
    let mut held_up = Vec::new();
    while let read @ 1.. = read(&from, &mut bytes).await {
        let text = String::from_utf8_lossy(&bytes[..read]);
        used.send_modify(|used| {
            // The store itself says now and then, to the directory, that it is there: no caller hears of that.
            used.scripts = text.contains("dwell:{");
            used.subscriptions |= text.contains("SUBSCRIBE");
        });
        let is_script = used.borrow().scripts;
        if is_script
            && shared.stop_after.load(Ordering::SeqCst) >= 0
            && shared.stop_after.fetch_sub(1, Ordering::SeqCst) == 0
        {
            shared.stopped.send_replace(true);
            let _ = shared.stopped.subscribe().wait_for(|stopped| !*stopped).await;
        }
        if *shared.held.borrow() >= number {
            holding.begin();
            held_up.extend_from_slice(&bytes[..read]);
        } else if arrives(shared, |link| link != Link::Deaf).await && !write(&to, &bytes[..read]).await {
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

async fn replies(from: OwnedReadHalf, to: OwnedWriteHalf, shared: &Shared, used: &watch::Sender<Use>) {
    let mut bytes = vec![0; 64 * 1024];
    while let read @ 1.. = read(&from, &mut bytes).await {
        let used = *used.borrow();
        if used.scripts && shared.pass.load(Ordering::SeqCst) >= 0 {
            let before = shared.pass.fetch_sub(1, Ordering::SeqCst);
            if before == 0 {
                return;
            }
        }
        let heard = |link| link != Link::Mute && (link != Link::NoHints || !used.subscriptions);
        if arrives(shared, heard).await && !write(&to, &bytes[..read]).await {
            return;
        }
    }
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

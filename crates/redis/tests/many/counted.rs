//! A TCP proxy that counts how many commands are under way.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// What is under way, over all connections, and the most there was.
#[derive(Default)]
pub(super) struct Count {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Count {
    /// The most since it was asked last.
    pub(super) fn most(&self) -> usize {
        self.most.swap(0, Ordering::SeqCst)
    }

    fn sent(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    fn answered(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A port that leads to the server at this one; it ends with the tests.
pub(super) fn to(server: u16) -> (u16, Arc<Count>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, count) = (listener.local_addr().unwrap().port(), Arc::new(Count::default()));
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", server))) else {
                continue;
            };
            // One that fails has nobody to tell.
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let (Ok(to_client), Ok(to_server)) = (client.try_clone(), server.try_clone()) else { continue };
            // What comes over a connection that has subscribed are no answers.
            let has_subscribed = Arc::<AtomicBool>::default();
            let (sent, answered) = (Arc::clone(&counted), Arc::clone(&counted));
            let subscribed = Arc::clone(&has_subscribed);
            thread::spawn(move || {
                carry(client, to_server, |command| {
                    let head = String::from_utf8_lossy(&command[..command.len().min(40)]).to_uppercase();
                    match head.contains("SUBSCRIBE") {
                        true => subscribed.store(true, Ordering::SeqCst),
                        false => sent.sent(),
                    }
                });
            });
            thread::spawn(move || {
                carry(server, to_client, |_| {
                    if !has_subscribed.load(Ordering::SeqCst) {
                        answered.answered();
                    }
                });
            });
        }
    });
    (port, count)
}

/// Passes on what comes until one of the two sides ends, and shows it value by value before.
fn carry(mut from: TcpStream, mut to: TcpStream, shown: impl Fn(&[u8])) {
    let (mut bytes, mut some) = (Vec::new(), vec![0; 64 * 1024]);
    while let Ok(read @ 1..) = from.read(&mut some) {
        bytes.extend_from_slice(&some[..read]);
        let mut at = 0;
        while let Some(length) = frame(&bytes[at..]) {
            shown(&bytes[at..at + length]);
            at += length;
        }
        bytes.drain(..at);
        if to.write_all(&some[..read]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// The length of the first whole value in these bytes. <https://redis.io/docs/latest/develop/reference/protocol-spec/>
fn frame(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(2).position(|two| two == b"\r\n")? + 2;
    let count = || std::str::from_utf8(&bytes[1..head - 2]).unwrap().parse::<i64>().unwrap();
    let items = match bytes[0] {
        b'$' | b'=' | b'!' => {
            let end = usize::try_from(count()).map_or(head, |length| head + length + 2);
            return (end <= bytes.len()).then_some(end);
        }
        b'*' | b'~' | b'>' => count(),
        b'%' => 2 * count(),
        _ => 0,
    };
    (0..items).try_fold(head, |at, _| Some(at + frame(&bytes[at..])?))
}

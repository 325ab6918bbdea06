//! A TCP proxy that keeps an answer to itself and breaks the connection: the command has been carried out then.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A port that leads to a server; it ends with the tests.
pub(crate) struct Proxy {
    port: u16,
    cuts: Arc<AtomicUsize>,
}

impl Proxy {
    pub(crate) fn to(server: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let cuts = Arc::new(AtomicUsize::new(0));
        let proxy = Proxy { port, cuts: Arc::clone(&cuts) };
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", server))) else {
                    continue;
                };
                let (Ok(to_client), Ok(to_server)) = (client.try_clone(), server.try_clone()) else {
                    continue;
                };
                let cuts = Arc::clone(&cuts);
                thread::spawn(move || carry(client, to_server, || false));
                // Answers to a connection's greeting are of no interest: a cut is asked for when it is made.
                thread::spawn(move || {
                    carry(server, to_client, || {
                        let cut =
                            cuts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                        cut.is_ok()
                    });
                });
            }
        });
        proxy
    }

    pub(crate) fn address(&self) -> dwell_redis::Address {
        format!("redis://127.0.0.1:{}?connections=1", self.port).parse().unwrap()
    }

    /// The next answer is lost, and its connection.
    pub(crate) fn cut(&self) {
        self.cuts.store(1, Ordering::SeqCst);
    }

    /// Whether there was one.
    pub(crate) fn has_cut(&self) -> bool {
        self.cuts.load(Ordering::SeqCst) == 0
    }
}

/// Passes on what comes until one of the two sides ends, or it is cut.
fn carry(mut from: TcpStream, mut to: TcpStream, is_cut: impl Fn() -> bool) {
    let mut some = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut some) {
        if is_cut() || to.write_all(&some[..read]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

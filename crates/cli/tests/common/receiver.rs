//! A receiver of webhooks.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use dwell_model::Timestamp;
use dwell_time::{Clock as _, SystemClock};

/// Answers each request with 204, and keeps its head and when it came.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<(String, Timestamp)>>>,
}

impl Receiver {
    /// On a free port.
    pub(crate) fn start() -> Receiver {
        Receiver::on(0)
    }

    /// On this port.
    pub(crate) fn on(port: u16) -> Receiver {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::default();
        let heard = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, heard) = (stream.unwrap(), Arc::clone(&heard));
                // A connection that breaks ends.
                thread::spawn(move || serve(stream, &heard));
            }
        });
        Receiver { address, requests }
    }

    /// The number of requests so far.
    pub(crate) fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// The requests so far, of which it keeps none.
    pub(crate) fn heard(&self) -> Vec<(String, Timestamp)> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

/// The value of a header of a request.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let found = lines.find(|(header, _)| header.eq_ignore_ascii_case(name));
    found.unwrap_or_else(|| panic!("no {name} in {head}")).1
}

fn serve(mut stream: TcpStream, heard: &Mutex<Vec<(String, Timestamp)>>) -> Option<()> {
    let clock = SystemClock::new();
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let length = header(&head, "content-length").parse().unwrap();
        reader.read_exact(&mut vec![0; length]).ok()?;
        heard.lock().unwrap().push((head, clock.now().wall));
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").ok()?;
    }
}

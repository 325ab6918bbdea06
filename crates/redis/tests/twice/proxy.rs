//! A TCP proxy that sends each `EVALSHA` and `EVAL` twice, one behind the other, and keeps the first answer to itself.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A port that leads to the server at this one; it ends with the tests.
pub(crate) fn to(server: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", server))) else {
                continue;
            };
            // One that fails has nobody to tell.
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let expected = Arc::<Mutex<Expected>>::default();
            let (Ok(to_client), Ok(to_server)) = (client.try_clone(), server.try_clone()) else { continue };
            let asked = Arc::clone(&expected);
            thread::spawn(move || carry(client, to_server, |command, out| send(command, &asked, out)));
            thread::spawn(move || carry(server, to_client, |reply, out| hear(reply, &expected, out)));
        }
    });
    port
}

/// What the server is to answer next.
#[derive(Default)]
struct Expected {
    /// Of each command, whether it was sent twice and this is the first answer.
    is_first: VecDeque<bool>,
    /// The connection has subscribed: what comes over it are no answers.
    has_subscribed: bool,
}

/// Passes on what comes, value by value, until one of the two sides ends.
fn carry(mut from: TcpStream, mut to: TcpStream, pass: impl Fn(&[u8], &mut Vec<u8>)) {
    let (mut bytes, mut some) = (Vec::new(), vec![0; 64 * 1024]);
    while let Ok(read @ 1..) = from.read(&mut some) {
        bytes.extend_from_slice(&some[..read]);
        let (mut out, mut at) = (Vec::new(), 0);
        while let Some(length) = frame(&bytes[at..]) {
            pass(&bytes[at..at + length], &mut out);
            at += length;
        }
        bytes.drain(..at);
        if to.write_all(&out).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn send(command: &[u8], expected: &Mutex<Expected>, out: &mut Vec<u8>) {
    let head = String::from_utf8_lossy(&command[..command.len().min(40)]).to_uppercase();
    let mut expected = expected.lock().unwrap();
    expected.has_subscribed |= head.contains("SUBSCRIBE\r\n");
    if head.contains("\r\nEVAL") {
        out.extend_from_slice(command);
        expected.is_first.push_back(true);
    }
    expected.is_first.push_back(false);
    out.extend_from_slice(command);
}

fn hear(reply: &[u8], expected: &Mutex<Expected>, out: &mut Vec<u8>) {
    let mut expected = expected.lock().unwrap();
    let is_first = expected.is_first.pop_front().unwrap_or(false);
    if expected.has_subscribed || !is_first {
        out.extend_from_slice(reply);
    }
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

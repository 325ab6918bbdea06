//! A receiver of webhooks: it logs each request's body, and answers 204.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use dwell_time::SystemClock;

use super::log::Log;
use super::{part, pause_ms};

/// Serves requests until the process is killed.
///
/// # Errors
/// If the port or the log cannot be opened.
pub(crate) fn receive(port: u16, log: &Path) -> io::Result<()> {
    part::end_with_parent();
    let log = Arc::new(Log::open(log)?);
    for stream in TcpListener::bind(("127.0.0.1", port))?.incoming() {
        let (stream, log) = (stream?, Arc::clone(&log));
        // A connection that breaks, as when the server is killed, concerns no other.
        thread::spawn(move || serve(stream, &log));
    }
    Ok(())
}

/// Serves the requests of one connection.
fn serve(mut stream: TcpStream, log: &Log) -> io::Result<()> {
    let clock = SystemClock::new();
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let work_ms = log.record(&String::from_utf8_lossy(&body))?;
        pause_ms(&clock, work_ms);
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?;
    }
}

//! Checks whether the peer has closed a connection.

use std::io;

use tokio::net::TcpStream;

/// Fails if the peer has closed the connection, as far as can be known without waiting. Unread bytes that it sent
/// before do not hide it.
///
/// The operating system knows of it before the runtime, which notices it at its next turn.
///
/// # Errors
/// [`BrokenPipe`](io::ErrorKind::BrokenPipe) if it has.
#[cfg(target_os = "linux")]
pub(crate) fn check_open(stream: &TcpStream) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let mut looked = [PollFd::new(stream, PollFlags::RDHUP)];
    poll(&mut looked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    if looked[0].revents().intersects(closed) { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
}

/// Here unread bytes hide it.
#[cfg(not(target_os = "linux"))]
pub(crate) fn check_open(stream: &TcpStream) -> io::Result<()> {
    match socket2::SockRef::from(stream).peek(&mut [std::mem::MaybeUninit::uninit()]) {
        Ok(0) => Err(io::ErrorKind::BrokenPipe.into()),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

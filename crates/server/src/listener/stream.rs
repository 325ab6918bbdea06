//! A connection's bytes, plain or under TLS.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::closed::check_open;

/// How many bytes are read ahead of the reader to learn whether the peer is still connected.
const AHEAD: usize = 4 * 1024;

/// A connection.
#[derive(Debug)]
pub(crate) enum Stream {
    /// Unencrypted.
    Plain(TcpStream),
    /// Encrypted.
    Tls(Box<Encrypted>),
}

/// A connection under TLS.
#[derive(Debug)]
pub(crate) struct Encrypted {
    stream: TlsStream<TcpStream>,
    /// Read from the socket, and not yet returned to the reader.
    ahead: Vec<u8>,
    ended: bool,
}

impl Stream {
    pub(crate) fn encrypted(stream: TlsStream<TcpStream>) -> Stream {
        Stream::Tls(Box::new(Encrypted { stream, ahead: Vec::new(), ended: false }))
    }

    /// Fails if the peer has closed the connection, as far as can be known without waiting.
    ///
    /// The operating system knows of it before the runtime, which notices it at its next turn.
    pub(crate) fn check_reader(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => check_open(stream),
            Stream::Tls(encrypted) => encrypted.check_reader(cx),
        }
    }
}

impl Encrypted {
    /// TLS's `close_notify` is bytes like all others, so it is only seen by reading.
    fn check_reader(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        check_open(self.stream.get_ref().0)?;
        if self.ahead.len() < AHEAD && !self.ended {
            let mut bytes = [MaybeUninit::uninit(); AHEAD];
            let mut buffer = ReadBuf::uninit(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Pending => {}
                Poll::Ready(read) => {
                    read?;
                    self.ended = buffer.filled().is_empty();
                    self.ahead.extend_from_slice(buffer.filled());
                    // The socket no longer wakes the task that waited to read.
                    cx.waker().wake_by_ref();
                }
            }
        }
        if self.ended { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let len = self.ahead.len().min(buffer.remaining());
            buffer.put_slice(&self.ahead[..len]);
            self.ahead.drain(..len);
            return Poll::Ready(Ok(()));
        }
        if self.ended {
            return Poll::Ready(Ok(()));
        }
        match ready!(Pin::new(&mut self.stream).poll_read(cx, buffer)) {
            // Many clients close without `close_notify`. HTTP has the length of everything it sends, so a truncated
            // message cannot be taken for a whole one.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            read => Poll::Ready(read),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Tls(encrypted) => encrypted.poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Stream::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(encrypted) => encrypted.stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(encrypted) => Pin::new(&mut encrypted.stream).poll_shutdown(cx),
        }
    }
}

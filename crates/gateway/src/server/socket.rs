//! The connection of a client: read by a library that knows the protocol, and by us in between.

use bytes::{Buf, Bytes};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

/// A client that sends more than this before it was answered is not read any further.
const MAX_READ_AHEAD_BYTES: usize = 64 << 10;
/// How long a client may go on sending that has been told why it is not served.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// A client that takes nothing for so long takes nothing any more.
const WRITE_TIMEOUT: Duration = Duration::from_secs(600);

/// A connection, and what was read of it ahead of time.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    ahead: Bytes,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        // Frames are small and go out one by one.
        stream.set_nodelay(true).ok();
        Self {
            stream,
            ahead: Bytes::new(),
        }
    }

    /// The same connection; this was read of it and comes before all that is still ahead.
    pub(crate) fn with_read_ahead(mut self, ahead: &[u8]) -> Self {
        if !ahead.is_empty() {
            // A piece of a large buffer would keep all of it.
            self.ahead = [ahead, &self.ahead].concat().into();
        }
        self
    }

    /// Comes when there is something to read, or nothing ever again.
    pub(crate) async fn readable(&self) {
        if self.ahead.is_empty() {
            // What is wrong with it is told when it is read.
            self.stream.readable().await.ok();
        }
    }

    /// Comes when the client has hung up. What it sends meanwhile is kept for later.
    pub(crate) async fn gone(&mut self) {
        while self.ahead.len() < MAX_READ_AHEAD_BYTES {
            if self.stream.readable().await.is_err() {
                return;
            }
            // It has no place in the future of a request that is held.
            let mut piece = [0_u8; 1024];
            match self.stream.try_read(&mut piece) {
                Ok(0) => return,
                Ok(length) => {
                    self.ahead = [&self.ahead, &piece[..length]].concat().into();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
        std::future::pending::<()>().await;
    }

    /// Writes all of these, in order.
    pub(crate) async fn write_all(&mut self, pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut pieces = pieces;
        IoSlice::advance_slices(&mut pieces, 0);
        while !pieces.is_empty() {
            let written = std::future::poll_fn(|context| {
                Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
            });
            let written = tokio::time::timeout(WRITE_TIMEOUT, written).await;
            match written.map_err(|_| io::ErrorKind::TimedOut)?? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => IoSlice::advance_slices(&mut pieces, written),
            }
        }
        Ok(())
    }

    /// Ends the connection after what was written. What the client is still sending is thrown away for a while: were it
    /// refused, many a client would never read what it was told.
    pub(crate) async fn close(mut self) {
        // Not on the stack: it would be a part of every request that waits.
        let mut piece = vec![0_u8; 4096];
        let discard = async {
            self.stream.shutdown().await?;
            while self.stream.read(&mut piece).await? > 0 {}
            io::Result::Ok(())
        };
        // However it ends, nothing more is wanted of it.
        tokio::time::timeout(LINGER_TIMEOUT, discard).await.ok();
    }

    /// Ends the connection so that the client cannot take what it got for all of it.
    pub(crate) fn reset(self) {
        self.stream.set_zero_linger().ok();
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let length = self.ahead.len().min(buffer.remaining());
        buffer.put_slice(&self.ahead[..length]);
        self.ahead.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

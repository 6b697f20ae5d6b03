//! The connection of a client: hyper reads requests from it, and the gateway reads and writes in between.

use bytes::{Buf, Bytes};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

/// Maximum number of bytes that are read ahead of a client that was not answered yet.
const MAX_READ_AHEAD_BYTES: usize = 64 << 10;
/// The time for which a refused client may go on sending.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// The time after which a client that accepts no bytes counts as gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(600);

/// A connection, and the bytes that were read ahead.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    read_ahead: Bytes,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        // Frames are small and go out one by one.
        stream.set_nodelay(true).ok();
        Self {
            stream,
            read_ahead: Bytes::new(),
        }
    }

    /// Puts bytes that were read from the connection before all that are still ahead.
    pub(crate) fn with_read_ahead(mut self, ahead: &[u8]) -> Self {
        if !ahead.is_empty() {
            // A slice of a large buffer would keep all of it.
            self.read_ahead = [ahead, &self.read_ahead].concat().into();
        }
        self
    }

    /// Waits until there is something to read, or the connection has ended.
    pub(crate) async fn readable(&self) {
        if self.read_ahead.is_empty() {
            // The read reports the error.
            self.stream.readable().await.ok();
        }
    }

    /// Waits until the client disconnects. Bytes that it sends meanwhile are kept for later.
    pub(crate) async fn disconnected(&mut self) {
        while self.read_ahead.len() < MAX_READ_AHEAD_BYTES {
            if self.stream.readable().await.is_err() {
                return;
            }
            // Small, and not kept across an await: it is no part of the future of a held request.
            let mut piece = [0_u8; 1024];
            match self.stream.try_read(&mut piece) {
                Ok(0) => return,
                Ok(length) => {
                    self.read_ahead = [&self.read_ahead, &piece[..length]].concat().into();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
        std::future::pending::<()>().await;
    }

    /// Writes all pieces, in order.
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

    /// Closes the connection after the response. Bytes that the client is still sending are discarded for a while: if
    /// they were refused, many clients would never read the response.
    pub(crate) async fn close(mut self) {
        // Not on the stack: it would be a part of every request that waits.
        let mut piece = vec![0_u8; 4096];
        let discard = async {
            self.stream.shutdown().await?;
            while self.stream.read(&mut piece).await? > 0 {}
            io::Result::Ok(())
        };
        // The connection is dropped whatever the result.
        tokio::time::timeout(LINGER_TIMEOUT, discard).await.ok();
    }

    /// Ends the connection so that the client cannot take a partial response for a whole one.
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
        if self.read_ahead.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let length = self.read_ahead.len().min(buffer.remaining());
        buffer.put_slice(&self.read_ahead[..length]);
        self.read_ahead.advance(length);
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

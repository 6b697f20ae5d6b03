//! One connection, which can be broken on purpose.
//!
//! The HTTP library only ends connections gracefully. So the disconnect is recorded in a signal beside the connection,
//! and the connection is dropped once everything that was written before has been sent. A reset is a real one: the
//! socket is closed without lingering.

use super::{Shared, request_handler};
use crate::reply::Disconnect;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use outlast_engine::CancellationToken;
use std::io::{IoSlice, Result};
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// The way in which a connection will end, once that is decided.
#[derive(Debug, Default)]
pub(super) struct DisconnectSignal {
    disconnect: OnceLock<Disconnect>,
    triggered: Notify,
}

impl DisconnectSignal {
    /// Ends the connection at once.
    pub(super) fn trigger(&self, how: Disconnect) {
        self.disconnect.get_or_init(|| how);
        self.triggered.notify_one();
    }

    /// Ends the connection when everything that was written before has been sent.
    pub(super) fn trigger_after_flush(&self, how: Disconnect) {
        self.disconnect.get_or_init(|| how);
    }
}

pub(super) async fn serve_connection(
    stream: TcpStream,
    shared: Arc<Shared>,
    stop: CancellationToken,
) {
    // Frames are small and sent one by one.
    stream.set_nodelay(true).ok();
    let fate = Arc::new(DisconnectSignal::default());
    let wire = TokioIo::new(FaultySocket {
        stream,
        signal: Arc::clone(&fate),
    });
    let service = {
        let fate = Arc::clone(&fate);
        service_fn(move |request| {
            request_handler::handle(Arc::clone(&shared), Arc::clone(&fate), request)
        })
    };
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut serving = pin!(builder.serve_connection(wire, service));
    tokio::select! {
        biased;
        // The log records the outcome of each request.
        _ = serving.as_mut() => return,
        () = fate.triggered.notified() => return,
        () = stop.cancelled() => serving.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        biased;
        _ = serving => {}
        () = fate.triggered.notified() => {}
    }
}

/// A socket that ends as its signal says.
struct FaultySocket {
    stream: TcpStream,
    signal: Arc<DisconnectSignal>,
}

impl Drop for FaultySocket {
    fn drop(&mut self) {
        if self.signal.disconnect.get() == Some(&Disconnect::Reset) {
            self.stream.set_zero_linger().ok();
        }
    }
}

impl AsyncRead for FaultySocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for FaultySocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Called when everything has been written: a disconnect that waited for that happens now.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() && self.signal.disconnect.get().is_some() {
            self.signal.triggered.notify_one();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

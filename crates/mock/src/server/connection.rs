//! One connection, which can be made to end badly.
//!
//! The library that speaks HTTP ends a connection only politely. So the connection's fate is kept beside it: what is to
//! end it is noted, and once everything that was written before is on its way, it is dropped. A reset is one on the
//! wire, too: the socket is closed without lingering.

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

/// How a connection will end, when that was decided.
#[derive(Debug, Default)]
pub(super) struct DisconnectSignal {
    how: OnceLock<Disconnect>,
    sealed: Notify,
}

impl DisconnectSignal {
    /// Ends the connection at once.
    pub(super) fn seal(&self, how: Disconnect) {
        self.how.get_or_init(|| how);
        self.sealed.notify_one();
    }

    /// Ends the connection when what was written before is on its way.
    pub(super) fn trigger_after_flush(&self, how: Disconnect) {
        self.how.get_or_init(|| how);
    }
}

pub(super) async fn connection(stream: TcpStream, shared: Arc<Shared>, stop: CancellationToken) {
    // Frames are small and go out one by one.
    stream.set_nodelay(true).ok();
    let fate = Arc::new(DisconnectSignal::default());
    let wire = TokioIo::new(FaultySocket {
        stream,
        fate: Arc::clone(&fate),
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
        // How it went is told by the log, for each request.
        _ = serving.as_mut() => return,
        () = fate.sealed.notified() => return,
        () = stop.cancelled() => serving.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        biased;
        _ = serving => {}
        () = fate.sealed.notified() => {}
    }
}

/// A socket that ends as its fate says.
struct FaultySocket {
    stream: TcpStream,
    fate: Arc<DisconnectSignal>,
}

impl Drop for FaultySocket {
    fn drop(&mut self) {
        if self.fate.how.get() == Some(&Disconnect::Reset) {
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

    /// Asked for when everything has been written: now a fate that waited for that is sealed.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() && self.fate.how.get().is_some() {
            self.fate.sealed.notify_one();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

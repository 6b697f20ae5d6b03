//! Ctrl-C and SIGTERM: the first one cancels, the second one ends the process at once.

use crate::exit::Exit;
use outlast_engine::CancellationToken;

/// Cancels the token at the first signal. Must be called within a runtime.
pub(crate) fn cancel_on_signal(cancel: CancellationToken) {
    tokio::spawn(async move {
        signal().await;
        cancel.cancel();
        signal().await;
        Exit::Cancelled.now();
    });
}

#[cfg(unix)]
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

#[cfg(not(unix))]
async fn signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

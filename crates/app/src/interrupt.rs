//! Signals: Ctrl-C cancels; being hung up or terminated leaves the work to be resumed. A second one ends the process at
//! once.

use crate::exit::Exit;
use tokio::sync::watch;

/// A request to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// A person wants it to end.
    Interrupt,
    /// The terminal is gone.
    HangUp,
    /// The system wants it to end.
    Terminate,
}

impl Signal {
    /// The code with which a process ends that it has ended.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::HangUp => 129,
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

/// The first signal, for everyone who waits for it.
#[derive(Clone)]
pub(crate) struct Signals(watch::Receiver<Option<Signal>>);

/// Listens from here on. Must be called within a runtime.
pub(crate) fn signals() -> Signals {
    let (sender, receiver) = watch::channel(None);
    tokio::spawn(async move {
        let mut source = Source::new();
        sender.send_replace(Some(source.next().await));
        Exit::Signalled(source.next().await).now();
    });
    Signals(receiver)
}

impl Signals {
    /// Comes with the first signal, once.
    pub(crate) async fn next(&mut self) -> Signal {
        loop {
            let changed = self.0.changed().await;
            match *self.0.borrow() {
                Some(signal) if changed.is_ok() => return signal,
                _ if changed.is_ok() => {}
                _ => break,
            }
        }
        std::future::pending().await
    }
}

#[cfg(unix)]
struct Source(Vec<(Signal, tokio::signal::unix::Signal)>);

#[cfg(unix)]
impl Source {
    fn new() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let kinds = [
            (Signal::Interrupt, SignalKind::interrupt()),
            (Signal::HangUp, SignalKind::hangup()),
            (Signal::Terminate, SignalKind::terminate()),
        ];
        let listen = |(name, kind)| Some((name, signal(kind).ok()?));
        Self(kinds.into_iter().filter_map(listen).collect())
    }

    async fn next(&mut self) -> Signal {
        let waits = self.0.iter_mut().map(|(name, source)| {
            Box::pin(async {
                match source.recv().await {
                    Some(()) => *name,
                    None => std::future::pending().await,
                }
            })
        });
        futures_util::future::select_all(waits).await.0
    }
}

#[cfg(not(unix))]
struct Source;

#[cfg(not(unix))]
impl Source {
    fn new() -> Self {
        Self
    }

    async fn next(&mut self) -> Signal {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Signal::Interrupt
    }
}

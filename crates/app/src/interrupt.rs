//! Signals: Ctrl-C cancels; being hung up or terminated leaves the work to be resumed. A second one ends the process at
//! once.

use crate::exit::Exit;
use tokio::sync::mpsc;

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

/// The first signal comes through the channel. Must be called within a runtime.
pub(crate) fn signals() -> mpsc::UnboundedReceiver<Signal> {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut source = Source::new();
        sender.send(source.next().await).ok();
        Exit::Signalled(source.next().await).now();
    });
    receiver
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
        match futures_util::future::select_all(waits).await {
            (name, _, _) => name,
        }
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

//! Signals: Ctrl-C cancels; a hang-up or a termination leaves the work to be resumed. After a second signal, the process
//! waits only as long as it takes to stop a tool.

use crate::platform::exit::Exit;
use std::time::Duration;
use tokio::sync::watch;

/// The time limit for stopping: by then a tool that was told to end is gone, and the turn is settled.
const STOP_TIMEOUT: Duration = Duration::from_millis(400);

/// A request to end the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C: a person wants the process to end.
    Interrupt,
    /// The terminal is gone.
    HangUp,
    /// The system wants the process to end.
    Terminate,
}

impl Signal {
    /// Returns the exit code of a process that this signal has ended.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::HangUp => 129,
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

/// The first signal, for all listeners.
#[derive(Clone)]
pub(crate) struct Signals(watch::Receiver<Option<Signal>>);

/// Starts to listen. Must be called within a runtime.
pub(crate) fn signals() -> Signals {
    first_signal_from(SignalStream::new())
}

/// Starts to listen, but not for hang-ups: for work that goes on without its terminal.
pub(crate) fn signals_without_hang_up() -> Signals {
    first_signal_from(SignalStream::new().without_hang_up())
}

fn first_signal_from(mut source: SignalStream) -> Signals {
    let (sender, receiver) = watch::channel(None);
    tokio::spawn(async move {
        sender.send_replace(Some(source.next().await));
        let second = source.next().await;
        tokio::time::sleep(STOP_TIMEOUT).await;
        Exit::Signalled(second).exit_process();
    });
    Signals(receiver)
}

impl Signals {
    /// Resolves with the first signal, once.
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

/// A stream of all signals.
#[cfg(unix)]
pub(crate) struct SignalStream(Vec<(Signal, tokio::signal::unix::Signal)>);

#[cfg(unix)]
impl SignalStream {
    /// Starts to listen. Must be called within a runtime.
    pub(crate) fn new() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let kinds = [
            (Signal::Interrupt, SignalKind::interrupt()),
            (Signal::HangUp, SignalKind::hangup()),
            (Signal::Terminate, SignalKind::terminate()),
        ];
        let is_wanted = |(name, _): &(Signal, _)| *name != Signal::HangUp || !ignores_hang_up();
        let listen = |(name, kind)| Some((name, signal(kind).ok()?));
        let wanted = kinds.into_iter().filter(is_wanted);
        Self(wanted.filter_map(listen).collect())
    }

    /// Treats `Ctrl-\` and its signal as a termination, too: the caller has to clean up first.
    pub(crate) fn with_quit(mut self) -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let quit = signal(SignalKind::quit()).ok();
        self.0.extend(quit.map(|quit| (Signal::Terminate, quit)));
        self
    }

    fn without_hang_up(mut self) -> Self {
        self.0.retain(|(name, _)| *name != Signal::HangUp);
        self
    }

    pub(crate) async fn next(&mut self) -> Signal {
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

/// Reports whether the parent process had hang-ups ignored, as `nohup` does.
#[cfg(unix)]
fn ignores_hang_up() -> bool {
    const HANG_UP: u64 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & HANG_UP != 0)
}

#[cfg(not(unix))]
pub(crate) struct SignalStream;

#[cfg(not(unix))]
impl SignalStream {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn with_quit(self) -> Self {
        self
    }

    fn without_hang_up(self) -> Self {
        self
    }

    pub(crate) async fn next(&mut self) -> Signal {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Signal::Interrupt
    }
}

//! A turn while somebody watches: events on the screen, the countdown, signals, hooks, and how it ends.

use crate::factory::hooks;
use crate::output::screen::Screen;
use crate::platform::exit::Exit;
use crate::platform::signals::{Signal, Signals};
use crate::print_diagnostic;
use outlast_engine::turn::TurnOutcome;
use outlast_kernel::event::TurnStatus;
use outlast_kernel::policy::Policy;
use outlast_session::Error;
use outlast_session::Session;
use outlast_session::hooks::{ExitReason, Hooks};
use parking_lot::Mutex;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const TICK_INTERVAL: Duration = Duration::from_millis(100);

/// What a turn is watched with.
pub(crate) struct WatchContext {
    pub(crate) screen: Screen,
    pub(crate) signals: Signals,
    pub(crate) hooks: Hooks,
}

/// How watching ended.
pub(crate) struct WatchedTurn {
    end: WatchEnd,
    signal: Option<Signal>,
    signals: Signals,
    hooks: Hooks,
}

enum WatchEnd {
    /// The turn is over; a signal may have ended it.
    Ended(Box<(Screen, TurnOutcome)>),
    /// It is left as it is, to be carried on by another process.
    Detached(Exit),
}

/// Watches a turn to its end, or until a signal says otherwise or nobody reads on.
pub(crate) async fn watch_turn(
    session: &Session,
    turn: impl Future<Output = Result<TurnOutcome, Error>>,
    watching: WatchContext,
) -> Result<WatchedTurn, Error> {
    let WatchContext {
        screen,
        mut signals,
        hooks,
    } = watching;
    let screen = Arc::new(Mutex::new(screen));
    let shown = Arc::clone(&screen);
    let subscription = session.subscribe(move |event| shown.lock().event(event));
    let _hooked = hooks.subscribe_to(session);
    let mut signal = None;
    let end = watch(session, turn, &screen, &mut signals, &mut signal).await?;
    drop(subscription);
    let end = match end {
        Err(exit) => WatchEnd::Detached(exit),
        Ok(ended) => {
            // The subscription had the other half.
            let screen = Arc::into_inner(screen);
            let screen = screen.map_or_else(|| Screen::new(false), Mutex::into_inner);
            WatchEnd::Ended(Box::new((screen, ended)))
        }
    };
    Ok(WatchedTurn {
        end,
        signal,
        signals,
        hooks,
    })
}

/// How the turn ended; or how the process ends, when it is left.
async fn watch(
    session: &Session,
    turn: impl Future<Output = Result<TurnOutcome, Error>>,
    screen: &Mutex<Screen>,
    signals: &mut Signals,
    signalled: &mut Option<Signal>,
) -> Result<Result<TurnOutcome, Exit>, Error> {
    let mut turn = pin!(turn);
    let mut ticks = tokio::time::interval(TICK_INTERVAL);
    let mut leaves_with = None;
    loop {
        let stop = tokio::select! {
            ended = &mut turn => return ended.map(Ok),
            _ = ticks.tick() => {
                let mut screen = screen.lock();
                screen.progress.tick(session.clock().now());
                // To go on would spend money for nothing.
                screen.is_stdout_lost().then_some(Exit::Failed)
            }
            signal = signals.next() => {
                *signalled = Some(signal);
                Some(Exit::Signalled(signal))
            }
        };
        match stop {
            None => {}
            Some(exit) if session.is_persistent() && *signalled != Some(Signal::Interrupt) => {
                leaves_with = Some(exit);
            }
            Some(_) => session.abort(),
        }
        // Another process can resume the turn once its prompt is in the journal, not before.
        if let Some(exit) = leaves_with
            && session.unfinished_turn().is_some()
        {
            if let Err(error) = session.flush().await {
                print_diagnostic(&format!(
                    "warning: the session is not written down to its end: {error}"
                ));
            }
            let id = session.id();
            let says = format!("Stopped: `outlast resume {id}` carries it on.");
            screen.lock().progress.print(&says);
            return Ok(Err(exit));
        }
    }
}

impl WatchedTurn {
    /// Says how it ended, gives the session back, and waits for hooks.
    pub(crate) async fn finish(self, session: Session, policy: &Policy) -> anyhow::Result<Exit> {
        let Self {
            end,
            signal,
            signals,
            hooks,
        } = self;
        hooks.session_stopped(&session, end.reason(signal));
        let exit = end.close(session, policy, signal).await;
        hooks::finish(&hooks, signal, signals).await;
        exit
    }
}

impl WatchEnd {
    fn reason(&self, signalled: Option<Signal>) -> ExitReason {
        let is_lost = match self {
            Self::Detached(_) => true,
            Self::Ended(end) => end.0.is_stdout_lost(),
        };
        match signalled {
            None if is_lost => ExitReason::HungUp,
            signalled => hooks::exit_reason(signalled),
        }
    }

    async fn close(
        self,
        session: Session,
        policy: &Policy,
        signalled: Option<Signal>,
    ) -> anyhow::Result<Exit> {
        let (mut screen, ended) = match self {
            Self::Detached(exit) => return Ok(exit),
            Self::Ended(end) => *end,
        };
        let exit = screen.finish(&ended, policy);
        if screen.is_stdout_lost() && session.is_persistent() {
            let id = session.id();
            print_diagnostic(&format!(
                "Nobody has read it: `outlast resume {id}` says it again."
            ));
            // Left as a process leaves it that dies: what was not delivered is said by the next one.
            std::mem::forget(session);
            return exit;
        }
        let exit = exit?;
        let closed = session.close().await;
        if let Err(error) = &closed {
            print_diagnostic(&format!(
                "warning: the session is not written down to its end: {error}"
            ));
        }
        Ok(match (exit, signalled) {
            (Exit::Unrecorded, _) if closed.is_ok() => Exit::Success,
            (Exit::Success, _) if closed.is_err() => Exit::Unrecorded,
            (_, Some(signal)) if ended.seal == TurnStatus::Aborted => Exit::Signalled(signal),
            (exit, _) => exit,
        })
    }
}

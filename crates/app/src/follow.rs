//! A turn while somebody watches: events on the screen, the countdown, signals.

use crate::interrupt::{Signal, Signals};
use crate::screen::Screen;
use outlast_agent::Session;
use outlast_agent::session::Error;
use outlast_engine::turn::Ended;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const TICK: Duration = Duration::from_millis(100);

/// How watching ended.
pub(crate) enum Followed {
    /// The turn is over.
    Ended(Box<(Screen, Ended)>),
    /// It is left as it is, to be carried on by another process.
    Stopped(Signal),
}

/// Watches a turn to its end, or until a signal says otherwise.
pub(crate) async fn follow(
    session: &Session,
    turn: impl Future<Output = Result<Ended, Error>>,
    screen: Screen,
    mut signals: Signals,
) -> Result<Followed, Error> {
    let screen = Arc::new(Mutex::new(screen));
    let shown = Arc::clone(&screen);
    let subscription = session.subscribe(move |event| lock(&shown).event(event));
    let mut turn = pin!(turn);
    let mut ticks = tokio::time::interval(TICK);
    let ended = loop {
        tokio::select! {
            ended = &mut turn => break ended?,
            _ = ticks.tick() => {
                let mut screen = lock(&screen);
                screen.progress.tick(session.clock().now());
                if screen.is_lost() {
                    session.abort();
                }
            }
            signal = signals.next() => {
                if signal == Signal::Interrupt || !session.is_kept() {
                    session.abort();
                } else {
                    let id = session.id();
                    lock(&screen).progress.print(&format!("Stopped: `outlast resume {id}` carries it on."));
                    return Ok(Followed::Stopped(signal));
                }
            }
        }
    };
    drop(subscription);
    // The subscription had the other half.
    let screen = Arc::into_inner(screen);
    let screen = screen.map(|screen| screen.into_inner().unwrap_or_else(PoisonError::into_inner));
    let screen = screen.unwrap_or_else(|| Screen::new(false));
    Ok(Followed::Ended(Box::new((screen, ended))))
}

fn lock(screen: &Mutex<Screen>) -> MutexGuard<'_, Screen> {
    screen.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The connection to the holds file: opened at the start, or later if it was not available.

use super::{Inner, State, row};
use outlast_engine::shared_state::StoreEvent;
use outlast_kernel::Timestamp;
use outlast_store::holds::{Holds, HoldsEvent, Listener, OpenedHolds, Row};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The interval at which an unavailable file is tried again.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(30);

/// The state of the connection to the file.
#[derive(Debug, Default)]
pub(super) enum Link {
    /// No file is configured, or it was closed.
    #[default]
    None,
    /// The file was not opened yet.
    Opening,
    /// The file is open.
    Joined(Holds),
    /// The file was not available, which was reported; it is tried again after that time.
    Alone { again: Timestamp },
}

/// Opens the file, if one is configured.
pub(super) async fn join(inner: &Arc<Inner>) {
    let Some(path) = inner.path.clone() else {
        return;
    };
    let listener = listener(Arc::downgrade(inner));
    let opening = tokio::task::spawn_blocking(move || Holds::open(&path, listener));
    match opening.await {
        Ok(Ok(opened)) => inner.adopt(opened),
        Ok(Err(error)) => inner.disconnect(&error.to_string()),
        Err(error) => inner.disconnect(&error.to_string()),
    }
}

/// Tries an unavailable file again in the background, if the last try is long enough ago.
pub(super) fn join_again(inner: &Arc<Inner>) {
    let now = inner.clock.now();
    match &mut inner.lock().link {
        Link::Alone { again } if *again <= now => *again = now + RECONNECT_INTERVAL,
        _ => return,
    }
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        let inner = Arc::clone(inner);
        runtime.spawn(async move { join(&inner).await });
    }
}

fn listener(inner: Weak<Inner>) -> Listener {
    Box::new(move |news| {
        let Some(inner) = inner.upgrade() else {
            return;
        };
        match news {
            HoldsEvent::Failing(error) => {
                let why = error.to_string();
                (inner.listener)(StoreEvent::Alone { why });
            }
            HoldsEvent::Again => (inner.listener)(StoreEvent::Joined),
            HoldsEvent::Replaced(aside) => {
                inner.write_all();
                if let Some(aside) = aside {
                    (inner.listener)(StoreEvent::Replaced { aside });
                }
            }
        }
    })
}

impl Inner {
    /// Takes over the holds of an earlier process, and writes those that began before the file was open.
    fn adopt(&self, opened: OpenedHolds) {
        let now = self.clock.now();
        let mut state = self.lock();
        if let Link::None = state.link {
            return;
        }
        let was_alone = matches!(state.link, Link::Alone { .. });
        opened.holds.prune(now);
        state.link = Link::Joined(opened.holds);
        state.write_all(now);
        state.take_over(&opened.rows, now);
        state.expire(now);
        self.count(&state);
        drop(state);
        if let Some(aside) = opened.replaced {
            (self.listener)(StoreEvent::Replaced { aside });
        }
        if was_alone {
            (self.listener)(StoreEvent::Joined);
        }
    }

    fn disconnect(&self, why: &str) {
        let mut state = self.lock();
        if let Link::Opening = state.link {
            let again = self.clock.now() + RECONNECT_INTERVAL;
            state.link = Link::Alone { again };
            drop(state);
            let why = why.to_owned();
            (self.listener)(StoreEvent::Alone { why });
        }
    }

    fn write_all(&self) {
        self.lock().write_all(self.clock.now());
    }
}

impl State {
    fn write_all(&self, now: Timestamp) {
        for (key, _) in self.known.entries() {
            self.write(key, now);
        }
    }

    fn take_over(&mut self, rows: &[Row], now: Timestamp) {
        for found in rows {
            match row::read(found, now) {
                Some((key, held)) => self.known.insert(key, held),
                None => self.remove_row(&found.key),
            }
        }
    }
}

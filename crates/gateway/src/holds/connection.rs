//! The connection to the holds file: opened at the start, or later if it was not available.

use super::registry::HeldRequest;
use super::{Inner, State};
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
    Connected(Holds),
    /// The file was not available, which was reported; it is tried again after that time.
    Disconnected { retry_at: Timestamp },
}

/// Opens the file, if one is configured.
pub(super) async fn connect(inner: &Arc<Inner>) {
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
pub(super) fn reconnect_if_due(inner: &Arc<Inner>) {
    let now = inner.clock.now();
    match &mut inner.state.lock().link {
        Link::Disconnected { retry_at } if *retry_at <= now => *retry_at = now + RECONNECT_INTERVAL,
        _ => return,
    }
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        let inner = Arc::clone(inner);
        runtime.spawn(async move { connect(&inner).await });
    }
}

fn listener(inner: Weak<Inner>) -> Listener {
    Box::new(move |news| {
        let Some(inner) = inner.upgrade() else {
            return;
        };
        match news {
            HoldsEvent::WriteFailed(error) => {
                let why = error.to_string();
                (inner.listener)(StoreEvent::Disconnected { why });
            }
            HoldsEvent::WriteRecovered => (inner.listener)(StoreEvent::Connected),
            HoldsEvent::Replaced(aside) => {
                inner.write_all();
                if let Some(backup_path) = aside {
                    (inner.listener)(StoreEvent::Replaced { backup_path });
                }
            }
        }
    })
}

impl Inner {
    /// Takes over the holds of an earlier process, and writes those that began before the file was open.
    fn adopt(&self, opened: OpenedHolds) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        if let Link::None = state.link {
            return;
        }
        let was_alone = matches!(state.link, Link::Disconnected { .. });
        opened.holds.prune(now);
        state.link = Link::Connected(opened.holds);
        state.write_all(now);
        state.import_rows(&opened.rows, now);
        state.expire(now);
        self.update_abandoned_count(&state);
        drop(state);
        if let Some(backup_path) = opened.replaced {
            (self.listener)(StoreEvent::Replaced { backup_path });
        }
        if was_alone {
            (self.listener)(StoreEvent::Connected);
        }
    }

    fn disconnect(&self, why: &str) {
        let mut state = self.state.lock();
        if let Link::Opening = state.link {
            let retry_at = self.clock.now() + RECONNECT_INTERVAL;
            state.link = Link::Disconnected { retry_at };
            drop(state);
            let why = why.to_owned();
            (self.listener)(StoreEvent::Disconnected { why });
        }
    }

    fn write_all(&self) {
        self.state.lock().write_all(self.clock.now());
    }
}

impl State {
    fn write_all(&self, now: Timestamp) {
        for (key, _) in self.registry.entries() {
            self.persist(key, now);
        }
    }

    fn import_rows(&mut self, rows: &[Row], now: Timestamp) {
        for found in rows {
            match HeldRequest::decode(found, now) {
                Some((key, held)) => self.registry.insert(key, held),
                None => self.remove_row(&found.key),
            }
        }
    }
}

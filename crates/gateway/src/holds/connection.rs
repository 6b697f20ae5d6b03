//! The connection to the holds file: opened at the start, or later if it was not available.

use super::registry::HeldRequest;
use super::{Inner, State};
use outlast_engine::shared_state::StoreEvent;
use outlast_kernel::Timestamp;
use outlast_store::holds::{Holds, HoldsEvent, Listener, OpenedHolds, Row};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The interval at which an unavailable file is tried again.
pub(super) const RECONNECT_INTERVAL: Duration = Duration::from_secs(30);

/// Opens the file, if one is configured.
pub(super) async fn connect(inner: &Arc<Inner>) {
    let listener = listener(Arc::downgrade(inner));
    let open = |path: &Path, _| Holds::open(path, listener);
    if let Some(opened) = inner.file.open(open, inner.clock.now()).await {
        inner.adopt(opened);
    }
}

/// Tries an unavailable file again in the background, if the last try is long enough ago.
pub(super) fn reconnect_if_due(inner: &Arc<Inner>) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current()
        && inner.file.is_due(inner.clock.now())
    {
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
                inner.file.announce(StoreEvent::Disconnected { why });
            }
            HoldsEvent::WriteRecovered => inner.file.announce(StoreEvent::Connected),
            HoldsEvent::Replaced(aside) => {
                inner.write_all();
                if let Some(backup_path) = aside {
                    inner.file.announce(StoreEvent::Replaced { backup_path });
                }
            }
        }
    })
}

impl Inner {
    /// Takes over the holds of an earlier process, and writes those that began before the file was open.
    fn adopt(&self, opened: OpenedHolds) {
        let now = self.clock.now();
        opened.holds.prune(now);
        (self.file).connect(Arc::new(opened.holds), opened.replaced, || {
            let mut state = self.state.lock();
            state.write_all(now);
            state.import_rows(&opened.rows, now);
            state.expire(now);
            self.update_abandoned_count(&state);
        });
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

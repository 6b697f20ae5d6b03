//! Opens the shared state of all processes of this user: one file in our folder.

use crate::complain;
use outlast_engine::Clock;
use outlast_engine::shared_state::{SharedState, StoreEvent};
use std::path::PathBuf;
use std::sync::Arc;

/// The name of the file.
pub(crate) const FILE: &str = "outlast.db";

/// Opens the shared state; without a folder it stays in this process.
pub(crate) async fn open(home: Option<PathBuf>, clock: &Arc<dyn Clock>) -> SharedState {
    match home {
        Some(home) => SharedState::shared(home.join(FILE), clock.clone(), Arc::new(say)).await,
        None => SharedState::alone(clock.clone()),
    }
}

fn say(notice: StoreEvent) {
    let warning = match notice {
        StoreEvent::Joined => {
            return crate::output::diagnostics::notice(
                "What other processes learn is known here again.",
            );
        }
        StoreEvent::Alone { why } => {
            format!(
                "warning: what other processes learn is not known here: {why}; going on without it"
            )
        }
        StoreEvent::Replaced { aside } => format!(
            "warning: what was known of providers is damaged; it is kept as {}, and a new file is begun",
            aside.display()
        ),
    };
    complain(&warning);
}

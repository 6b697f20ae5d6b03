//! Opens the shared state of all processes of this user: one file in our folder.

use crate::print_diagnostic;
use outlast_engine::Clock;
use outlast_engine::shared_state::{SharedState, StoreEvent};
use std::path::PathBuf;
use std::sync::Arc;

/// The name of the file.
pub(crate) const FILE: &str = "outlast.db";

/// Opens the shared state; without a folder it stays in this process.
pub(crate) async fn open(home: Option<PathBuf>, clock: &Arc<dyn Clock>) -> SharedState {
    match home {
        Some(home) => {
            SharedState::connect(home.join(FILE), clock.clone(), Arc::new(report_notice)).await
        }
        None => SharedState::process_local(clock.clone()),
    }
}

fn report_notice(notice: StoreEvent) {
    let warning = match notice {
        StoreEvent::Connected => {
            return crate::output::diagnostics::print_status(
                "What other processes learn is known here again.",
            );
        }
        StoreEvent::Disconnected { why } => {
            format!(
                "warning: what other processes learn is not known here: {why}; going on without it"
            )
        }
        StoreEvent::Replaced { backup_path } => format!(
            "warning: what was known of providers is damaged; it is kept as {}, and a new file is begun",
            backup_path.display()
        ),
    };
    print_diagnostic(&warning);
}

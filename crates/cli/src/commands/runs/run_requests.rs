//! Reports the delivery of a run request.

use crate::commands::runs::find::explain_error;
use crate::output::diagnostics::print_status;
use crate::platform::exit::Exit;
use crate::print_diagnostic;
use outlast_pipeline::run_store::{Error, RunRequestReceipt};

/// Prints whether the run received the request.
pub(in crate::commands::runs) fn report_sent(
    told: Result<RunRequestReceipt, Error>,
) -> anyhow::Result<Exit> {
    let RunRequestReceipt { id, is_at_work } = told.map_err(explain_error)?;
    match is_at_work {
        true => print_status(&format!("Told run {id}.")),
        false => print_diagnostic(&format!(
            "No process is at work on run {id}; `outlast run --resume {id}` carries it on, and is told."
        )),
    }
    Ok(Exit::Success)
}

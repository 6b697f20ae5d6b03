//! Reports the delivery of a run request.

use crate::commands::runs::find::explain_error;
use crate::output::diagnostics::print_status;
use crate::platform::exit::Exit;
use crate::print_diagnostic;
use outlast_pipeline::run_store::{Error, RequestReceipt};

/// Prints whether the run received the request.
pub(in crate::commands::runs) fn report_sent(
    told: Result<RequestReceipt, Error>,
) -> anyhow::Result<Exit> {
    let RequestReceipt { run, is_running } = told.map_err(explain_error)?;
    match is_running {
        true => print_status(&format!("Told run {run}.")),
        false => print_diagnostic(&format!(
            "No process is at work on run {run}; `outlast run --resume {run}` carries it on, and is told."
        )),
    }
    Ok(Exit::Success)
}

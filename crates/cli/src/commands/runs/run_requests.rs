//! Reports the delivery of a run request.

use crate::commands::runs::find::said;
use crate::complain;
use crate::output::diagnostics::notice;
use crate::platform::exit::Exit;
use outlast_pipeline::run_store::{Error, RequestReceipt};

/// Prints whether the run received the request.
pub(in crate::commands::runs) fn say(told: Result<RequestReceipt, Error>) -> anyhow::Result<Exit> {
    let RequestReceipt { run, is_at_work } = told.map_err(said)?;
    match is_at_work {
        true => notice(&format!("Told run {run}.")),
        false => complain(&format!(
            "No process is at work on run {run}; `outlast run --resume {run}` carries it on, and is told."
        )),
    }
    Ok(Exit::Success)
}

//! Finds the run that a person named, and words the errors.

use super::NO_RUN;
use crate::platform::exit::UsageError;
use outlast_pipeline::run_store::{Error, RunStore};
use outlast_store::journal::Summary;

/// Returns the run with the given name or the given beginning of a name, or the newest run if none is given.
pub(super) async fn find_or_newest(home: &RunStore, name: Option<&str>) -> anyhow::Result<Summary> {
    if let Some(name) = name {
        return home.find(name).await.map_err(explain_error);
    }
    let newest = home.all().await?.into_iter().next();
    Ok(newest.ok_or_else(|| UsageError(NO_RUN.to_owned()))?)
}

/// Converts an error of the run store to a usage error with the command that helps.
pub(crate) fn explain_error(error: Error) -> anyhow::Error {
    let remedy = match &error {
        Error::EmptyName | Error::NotFound { .. } => "; `outlast runs` lists them".to_owned(),
        Error::RunEnded { run } => format!("; `outlast runs show {run}` says how it ended"),
        Error::StepNotActive { run, .. } => format!("; `outlast runs show {run}` says what is"),
        Error::NoOpenQuestion { step: Some(_) } => {
            "; `outlast runs show` says what does".to_owned()
        }
        Error::NoOpenQuestion { step: None } => {
            "; `outlast runs show` says what it does".to_owned()
        }
        Error::Ambiguous { .. } | Error::AmbiguousQuestion { .. } | Error::UnknownChoice { .. } => {
            String::new()
        }
        _ => return error.into(),
    };
    UsageError(format!("{error}{remedy}")).into()
}

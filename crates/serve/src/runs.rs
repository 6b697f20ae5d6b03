//! Starting a run for an API client. How to spawn the process is up to the program that implements [`StartRun`].

use outlast_engine::BoxFuture;
use outlast_pipeline::file::Faults;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A run to start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRun {
    /// The path of the pipeline's file, relative to the folder in which the run works.
    pub file: PathBuf,
    /// The folder in which the run works; if absent, that of the server.
    #[serde(default)]
    pub directory: Option<PathBuf>,
    /// The inputs of the run, by name.
    #[serde(default)]
    pub inputs: BTreeMap<String, String>,
}

/// Starts runs. A run outlives the client that started it.
pub trait StartRun: Send + Sync {
    /// Starts a run, and returns its id once it is recorded. Nobody can be asked while it runs, so anything that its file
    /// does not allow is refused.
    fn start(&self, wanted: NewRun) -> BoxFuture<'_, Result<String, StartError>>;
}

/// The error of a run that could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The pipeline's file is invalid: all faults, with lines and columns.
    #[error(transparent)]
    Faults(#[from] Faults),
    /// The request is invalid in another way: no such file, a missing input, a model that is not available.
    #[error("{why}")]
    Refused {
        /// The reason, and how to correct it.
        why: String,
    },
    /// The run could not be started, for a reason that lies outside of the request.
    #[error("the run could not be begun: {why}")]
    Failed {
        /// The reason.
        why: String,
    },
}

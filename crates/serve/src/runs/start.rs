//! Beginning a run, for whoever asks over the network. How a process is started is the program's own business.

use outlast_engine::BoxFuture;
use outlast_pipeline::file::Faults;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A run that is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WantedRun")]
pub struct NewRun {
    /// The pipeline's file; as it is found from the folder in which the run works.
    pub file: PathBuf,
    /// The folder in which it works; without it, that of the server.
    #[serde(default)]
    pub directory: Option<PathBuf>,
    /// What the run is given, by name.
    #[serde(default)]
    pub inputs: BTreeMap<String, String>,
}

/// Begins runs. They outlive whoever began them.
pub trait StartRun: Send + Sync {
    /// Begins a run, and gives its id once it is written down. Nobody is asked while it runs: what its file does not allow
    /// is refused.
    fn start(&self, wanted: NewRun) -> BoxFuture<'_, Result<String, StartError>>;
}

/// A run that was not begun.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Something is wrong with the pipeline's file: all of it, with lines and columns.
    #[error(transparent)]
    Faults(#[from] Faults),
    /// Something else is wrong with what is wanted: no such file, an input that is missing, a model that cannot be asked.
    #[error("{why}")]
    Refused {
        /// What, and what to do.
        why: String,
    },
    /// It could not be begun, whatever was wanted.
    #[error("the run could not be begun: {why}")]
    Failed {
        /// Why.
        why: String,
    },
}

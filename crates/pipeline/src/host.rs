//! The services that a run needs from its program, and the places where it stores data.

use crate::run_store::mailbox::Mailbox;
use outlast_engine::{BoxFuture, Clock};
use outlast_session::Setup;
use outlast_store::Journal;
use outlast_store::artifacts::Artifacts;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Creates sessions for steps.
pub trait Host: Send + Sync {
    /// Returns the setup of a session without its retry policy, or the reason why there is none.
    fn setup<'a>(&'a self, wanted: SessionRequest<'a>) -> BoxFuture<'a, Result<Setup, String>>;

    /// Returns the variables of our environment that commands must not see.
    fn hidden_variables(&self) -> &[String];
}

/// The session that a step asks for.
#[derive(Clone, Copy, Debug)]
pub struct SessionRequest<'a> {
    /// The provider; `None` means the one in the settings.
    pub provider: Option<&'a str>,
    /// The model; `None` means the one in the settings.
    pub model: Option<&'a str>,
    /// The fallback models; an empty list leaves them to the settings.
    pub fallbacks: &'a [String],
    /// The permissions beside reading; `None` offers no tools at all.
    pub allow: Option<&'a [String]>,
    /// The working directory.
    pub directory: &'a Path,
}

/// The resources of a run.
#[derive(Clone)]
pub struct RunResources {
    /// The journal of the runs.
    pub runs: Journal,
    /// The journal of the sessions of their steps.
    pub sessions: Journal,
    /// The store of the steps' artifacts.
    pub artifacts: Arc<Artifacts>,
    /// The mailbox of requests from other processes.
    pub mailbox: Arc<Mailbox>,
    /// The creator of sessions.
    pub host: Arc<dyn Host>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The folder for files that the commands of an attempt read; it belongs to us.
    pub scratch: PathBuf,
}

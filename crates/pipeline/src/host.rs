//! What a run needs of the program that it is part of, and where it keeps things.

use crate::run_store::mailbox::Mailbox;
use outlast_engine::{BoxFuture, Clock};
use outlast_session::Setup;
use outlast_store::Journal;
use outlast_store::artifacts::Artifacts;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Makes sessions for steps.
pub trait Host: Send + Sync {
    /// What a session for that is made of, but for when it tries again; or why there can be none.
    fn setup<'a>(&'a self, wanted: SessionRequest<'a>) -> BoxFuture<'a, Result<Setup, String>>;

    /// Variables of our environment that commands must not see.
    fn hidden_variables(&self) -> &[String];
}

/// The session that a step wants.
#[derive(Clone, Copy, Debug)]
pub struct SessionRequest<'a> {
    /// Who answers; `None` is who the settings name.
    pub provider: Option<&'a str>,
    /// Which model; `None` is the one that the settings name.
    pub model: Option<&'a str>,
    /// The models that are asked when that one cannot be; none leaves it to the settings.
    pub fallbacks: &'a [String],
    /// What it may do beside reading; `None` offers no tools at all.
    pub allow: Option<&'a [String]>,
    /// Where it works.
    pub directory: &'a Path,
}

/// What a run works with.
#[derive(Clone)]
pub struct RunResources {
    /// Where runs are written down.
    pub runs: Journal,
    /// Where the sessions of their steps are.
    pub sessions: Journal,
    /// Where what steps make is kept.
    pub artifacts: Arc<Artifacts>,
    /// Where letters from other processes come in.
    pub mailbox: Arc<Mailbox>,
    /// Who makes sessions.
    pub host: Arc<dyn Host>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where the files of an attempt are put that its commands read; it is ours.
    pub scratch: PathBuf,
}

//! The error of this crate.

use outlast_engine::transport::SettingError;
use outlast_kernel::decision::GiveUp;
use outlast_kernel::failure::ClassifiedFailure;
use std::sync::Arc;

/// The error of a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address of a model is invalid.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The retry policy is invalid.
    #[error(transparent)]
    Policy(#[from] outlast_kernel::policy::Error),
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] outlast_store::Error),
    /// The session refused the operation.
    #[error(transparent)]
    Session(#[from] outlast_session::Error),
    /// The model did not reply, and nothing more was tried.
    #[error("{}: {reason}", failure.failure.message)]
    Failed {
        /// The last failure and its verdict.
        failure: Arc<ClassifiedFailure>,
        /// The reason for which it was not retried.
        reason: GiveUp,
    },
    /// The turn was aborted.
    #[error("the turn was aborted")]
    Aborted,
}

//! What models can do, as data.

use serde::{Deserialize, Serialize};

/// How an answer that broke off can be gone on with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContinueBy {
    /// The provider goes on with it, and is asked for the rest.
    Resume,
    /// The model goes on with a message that it has begun.
    Prefill,
    /// The model is told where it broke off.
    #[default]
    Prompt,
    /// Not at all: it is asked for anew.
    Restart,
}

/// What is known of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// How many tokens a request and its answer may have together.
    pub window: Option<u64>,
    /// How an answer that broke off is gone on with.
    pub continues_by: ContinueBy,
}

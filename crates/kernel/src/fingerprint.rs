//! The identity of a failure: step, class and message.

use crate::text;
use crate::verdict::Class;
use serde::{Deserialize, Serialize};

/// The most of a message that takes part in its fingerprint, in bytes.
const MESSAGE_LIMIT: usize = 512;

/// Two failures with the same fingerprint are the same failure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fingerprint {
    step: String,
    class: Class,
    message: String,
}

impl Fingerprint {
    /// The fingerprint of a failure of that step.
    pub fn new(step: &str, class: Class, message: &str) -> Self {
        Self {
            step: step.to_owned(),
            class,
            message: text::bounded(message.trim(), MESSAGE_LIMIT).into_owned(),
        }
    }

    /// The step that failed.
    pub fn step(&self) -> &str {
        &self.step
    }

    /// The class of the failure.
    pub const fn class(&self) -> Class {
        self.class
    }

    /// The message that it is known by.
    pub fn message(&self) -> &str {
        &self.message
    }
}

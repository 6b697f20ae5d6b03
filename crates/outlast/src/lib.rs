//! The library for Rust programs: classify a provider's failure, and ask a retry policy what to do about it.
//!
//! ```
//! use outlast::{Failure, RetryPolicy, Timestamp, classify};
//! use std::time::Duration;
//!
//! let failure = Failure::http("openai", 429, "Please try again in 30s.", Timestamp::default());
//! let verdict = classify(&failure);
//! assert_eq!(verdict.hint.unwrap().wait(Timestamp::default()), Duration::from_secs(30));
//!
//! let policy = RetryPolicy::named("overnight")?;
//! assert_eq!(policy.delay_for(0), Some(Duration::from_secs(5)));
//! # Ok::<(), outlast::PolicyError>(())
//! ```
#![warn(missing_docs)]

pub use outlast_kernel::Timestamp;
pub use outlast_kernel::classify::classify;
pub use outlast_kernel::failure::Failure;
pub use outlast_kernel::policy::{Error as PolicyError, Policy as RetryPolicy};
pub use outlast_kernel::verdict::{Cause, Verdict};

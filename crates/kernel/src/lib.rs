//! The decisions of Outlast, as pure functions.
//!
//! Everything here depends on its arguments alone: time comes in as a [`Timestamp`], chance comes in as a number, and
//! actions go out as data. The engine carries them out.
//!
//! Not here: sleeping, calling, storing, printing (see the crates above), and any knowledge of a wire format (see
//! `outlast-dialect`).
//!
//! ```
//! use outlast_kernel::policy::Policy;
//! use std::time::Duration;
//!
//! let overnight = Policy::named("overnight")?;
//! assert_eq!(overnight.delay_for(0), Some(Duration::from_secs(5)));
//! assert_eq!(overnight.delay_for(20), Some(Duration::from_secs(1800)));
//! assert_eq!(overnight.delay_for(21), None); // eight hours are spent
//! # Ok::<(), outlast_kernel::policy::Error>(())
//! ```
#![warn(missing_docs)]

pub mod account;
pub mod attempt;
pub mod breaker;
pub mod budget;
pub mod classify;
pub mod completion;
pub mod decision;
pub mod event;
pub mod failure;
pub mod fallback;
pub mod fingerprint;
pub mod gate;
mod hint;
pub mod loops;
pub mod model_info;
pub mod policy;
pub mod step_decision;
pub mod text;
pub mod time;
pub mod verdict;

pub use time::Timestamp;

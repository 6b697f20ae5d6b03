//! The process and the machine: home folder, clock, signals, exit codes, async runtime and file limits.

pub(crate) mod clock;
pub(crate) mod exit;
pub(crate) mod home;
pub(crate) mod runtime;
pub(crate) mod signals;

//! The gateway as a process among clients, signals, full disks and few resources: what waits outlives it, what is under
//! way ends well, memory stays within bounds, and no secret gets out.

mod disks;
mod drains;
mod memory;
mod restarts;
mod scene;
mod secrets;

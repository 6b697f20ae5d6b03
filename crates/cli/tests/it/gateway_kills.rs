//! The gateway as a process among clients, signals, full disks and few resources: held requests outlive it, responses
//! under way finish, memory stays bounded, and no secret leaks.

mod disks;
mod drains;
mod memory;
mod restarts;
mod scene;
mod secrets;

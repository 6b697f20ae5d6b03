//! The gateway: a real scripted provider, a real gateway, real sockets, a clock that runs fast.

mod faults;
mod rig;

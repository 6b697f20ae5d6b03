//! The gateway: a real scripted provider, a real gateway, real sockets, a clock that runs fast.

mod faults;
mod hostile;
mod limits;
mod raw;
mod rig;

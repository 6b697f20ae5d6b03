//! The engine from outside, on a paused clock.

mod conservative_streams;
mod support;
mod turn_control;
mod turn_retry;

//! The facade from outside: its examples as programs.
#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

mod examples;

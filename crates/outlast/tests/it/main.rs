//! The facade from outside: its examples as programs, and conversations.
#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

mod conversation;
mod examples;

//! A mock provider that fails on demand, in three dialects.
//!
//! A [`Script`] defines the faults and their order. [`ScriptedTransport`] plays it in process, [`Server`] as a real
//! HTTP server; both send the same bytes, so that tests run the same code as users do.
#![warn(missing_docs)]

mod background_responses;
mod compress;
mod content;
mod conversation;
mod error_response;
mod log;
mod plan;
mod playback;
mod reply;
mod request_facts;
mod route;
mod script;
mod script_registry;
mod server;
pub mod simulation;
mod transport;

pub use reply::{Action, AnswerKind, Disconnect, HintForm, PageForm, ProviderError, Reply};
pub use script::{Error, Script, help};
pub use server::{ListenError, Options, Server};
pub use transport::ScriptedTransport;

//! Pretends: a provider that fails on demand, in three dialects.
//!
//! A [`Script`] says what goes wrong and when. [`Scripted`] plays it in process as a transport, [`Server`] as a real
//! HTTP server; both send the same bytes, so that everything above is what users run.
#![warn(missing_docs)]

mod book;
mod compress;
mod content;
mod conversation;
mod facts;
mod kept;
mod log;
mod plan;
mod play;
mod refusal;
mod reply;
mod route;
mod script;
mod server;
pub mod simulation;
mod transport;

pub use reply::{Act, Broken, HintForm, Kind, PageForm, Reply, Trouble};
pub use script::{Error, Script, help};
pub use server::{ListenError, Options, Server};
pub use transport::Scripted;

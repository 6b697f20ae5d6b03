//! Servers of the Model Context Protocol: processes whose tools are offered beside our own.
//!
//! A server is started when the tools of a session are put together, since what it offers has to be known then, and is
//! started again for a call when it has ended in the meantime.
//!
//! Invariants: what a server says about itself decides nothing. Its tools may run at most once and need a permission,
//! unless the user has said otherwise. A server that is broken costs its own tools and nothing else.
//!
//! Not here: servers that are reached over the network, and what else than tools a server may offer.

mod call_result;
mod connection;
mod names;
mod process;
mod server_handle;
mod tool;

use super::{Effect, Tool, Tools};
use futures_util::future::join_all;
use server_handle::{LaunchContext, ServerHandle};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tool::ServerTool;

/// The permission that covers the tools of all servers. The name of a server covers all of its own.
pub const MCP_PERMISSION: &str = "mcp";

/// A server, as the user has described it.
#[derive(Clone)]
pub struct ServerConfig {
    /// What it is called in the names of its tools, and in permissions.
    pub name: String,
    /// The program that is run, in the working folder.
    pub program: String,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// Variables that only this server sees. They may be secret, so this has no `Debug`.
    pub variables: BTreeMap<String, String>,
    /// How long a call may take. The session's limit counts as well.
    pub timeout: Duration,
    /// What running a tool twice would do, by the server's own names. Whatever is not named may run at most once.
    pub effects: BTreeMap<String, Effect>,
}

/// What is wrong with a server, or with one of its tools.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such program, or it cannot be run.
    #[error("the MCP server `{server}` could not be started: {program}: {error}")]
    NotStarted {
        /// The server.
        server: String,
        /// Its program.
        program: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// It runs, and does not say which tools it has.
    #[error("the MCP server `{server}` does not work: {why}")]
    Broken {
        /// The server.
        server: String,
        /// What happened, and what it printed last.
        why: String,
    },
    /// Several tools would have the same name. None of them is offered.
    #[error("`{name}` would be the name of several MCP tools, and is given to none: {tools}")]
    SameName {
        /// The name that they would have.
        name: String,
        /// Whose they are and what they are called there.
        tools: String,
    },
    /// A tool's schema is too long to be sent with every request.
    #[error(
        "the tool `{tool}` of the MCP server `{server}` is not offered: its schema is longer than {limit} bytes"
    )]
    LongSchema {
        /// The server.
        server: String,
        /// What the tool is called there.
        tool: String,
        /// The most that a schema may be.
        limit: usize,
    },
    /// The effect of a tool was set that the server does not have.
    #[error("the MCP server `{server}` has no tool `{tool}`, whose effect is set")]
    NoSuchTool {
        /// The server.
        server: String,
        /// The name that was set.
        tool: String,
    },
}

impl Tools {
    /// With the tools of these servers, and what is wrong with them. To be called when all permissions are given: a server
    /// of which nothing could run is not started.
    pub async fn with_servers(mut self, servers: Vec<ServerConfig>) -> (Self, Vec<Error>) {
        let place = LaunchContext {
            directory: self.directory().to_owned(),
            hidden_variables: self.hidden_variables().to_vec(),
        };
        let could_run = |server: &ServerConfig| {
            let permissions = [server.name.clone(), MCP_PERMISSION.to_owned()];
            self.can_run_any(&names::prefix(&server.name), &permissions)
        };
        let useful: Vec<ServerConfig> = servers.into_iter().filter(could_run).collect();
        let starting = useful
            .into_iter()
            .map(|server| start(server, place.clone()));
        let mut problems = Vec::new();
        let mut tools = Vec::new();
        for started in join_all(starting).await {
            match started {
                Ok((found, wrong)) => {
                    tools.extend(found);
                    problems.extend(wrong);
                }
                Err(error) => problems.push(error),
            }
        }
        let (tools, same) = reject_duplicate_names(tools);
        for tool in tools {
            self = self.with(Arc::new(tool));
        }
        problems.extend(same);
        (self, problems)
    }
}

/// Starts a server and asks what it has.
async fn start(
    server: ServerConfig,
    place: LaunchContext,
) -> Result<(Vec<ServerTool>, Vec<Error>), Error> {
    let (host, listed) = ServerHandle::start(server, place).await?;
    let host = Arc::new(host);
    let server = &host.server;
    let unknown = server.effects.keys();
    let unknown = unknown.filter(|name| listed.iter().all(|tool| tool.name != **name));
    let mut problems: Vec<Error> = unknown
        .map(|name| Error::NoSuchTool {
            server: server.name.clone(),
            tool: name.clone(),
        })
        .collect();
    let mut tools = Vec::new();
    for tool in listed {
        match ServerTool::new(&host, tool) {
            Ok(tool) => tools.push(tool),
            Err(error) => problems.push(error),
        }
    }
    Ok((tools, problems))
}

/// The tools that have their names for themselves. Of several with one name none is offered: which of them it would be
/// could change from one process to the next.
fn reject_duplicate_names(tools: Vec<ServerTool>) -> (Vec<ServerTool>, Vec<Error>) {
    let mut by_name: BTreeMap<String, Vec<ServerTool>> = BTreeMap::new();
    for tool in tools {
        by_name.entry(tool.describe().name).or_default().push(tool);
    }
    let mut once = Vec::new();
    let mut same = Vec::new();
    for (name, mut tools) in by_name {
        if tools.len() == 1 {
            once.append(&mut tools);
            continue;
        }
        let tools: Vec<String> = tools.iter().map(ServerTool::origin).collect();
        let tools = tools.join(", ");
        same.push(Error::SameName { name, tools });
    }
    (once, same)
}

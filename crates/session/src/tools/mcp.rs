//! Servers of the Model Context Protocol: processes that offer tools beside our own.
//!
//! A server starts when the tools of a session are assembled, to list its tools, and again for a call if it has ended since.
//! Invariants: a server's statements about itself decide nothing. Its tools run at most once and need a permission, unless
//! the user has configured otherwise. A broken server affects its own tools only.
//! Not here: servers that are reached over the network, and MCP features other than tools.

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

/// The configuration of a server.
#[derive(Clone)]
pub struct ServerConfig {
    /// The server's name in the names of its tools, and in permissions.
    pub name: String,
    /// The program, run in the working folder.
    pub program: String,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// Environment variables that only this server sees. They may be secret, so this type has no `Debug`.
    pub variables: BTreeMap<String, String>,
    /// The time limit of a call. The session's limit applies as well.
    pub timeout: Duration,
    /// The effect of running a tool twice, by the server's own tool names. Tools that are not listed run at most once.
    pub effects: BTreeMap<String, Effect>,
}

/// A problem with a server, or with one of its tools.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program does not exist, or cannot be run.
    #[error("the MCP server `{server}` could not be started: {program}: {error}")]
    NotStarted {
        /// The server.
        server: String,
        /// Its program.
        program: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// The server runs, but does not list its tools.
    #[error("the MCP server `{server}` does not work: {why}")]
    Broken {
        /// The server.
        server: String,
        /// The failure, and the last output of the server.
        why: String,
    },
    /// Several tools would have the same name. None of them is offered.
    #[error("`{name}` would be the name of several MCP tools, and is given to none: {tools}")]
    DuplicateName {
        /// The name that they would have.
        name: String,
        /// The servers and their own names for the tools.
        tools: String,
    },
    /// A tool's schema is too long to be sent with every request.
    #[error(
        "the tool `{tool}` of the MCP server `{server}` is not offered: its schema is longer than {limit} bytes"
    )]
    SchemaTooLong {
        /// The server.
        server: String,
        /// The server's name for the tool.
        tool: String,
        /// Maximum length of a schema, in bytes.
        limit: usize,
    },
    /// The configuration sets the effect of a tool that the server does not have.
    #[error("the MCP server `{server}` has no tool `{tool}`, whose effect is set")]
    UnknownTool {
        /// The server.
        server: String,
        /// The name that was set.
        tool: String,
    },
}

impl Tools {
    /// Adds the tools of these servers, and returns the problems with them. Call it after all permissions are granted: a server
    /// none of whose tools could run is not started.
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

/// Starts a server and lists its tools.
async fn start(
    server: ServerConfig,
    place: LaunchContext,
) -> Result<(Vec<ServerTool>, Vec<Error>), Error> {
    let (host, listed) = ServerHandle::start(server, place).await?;
    let host = Arc::new(host);
    let server = &host.config;
    let unknown = server.effects.keys();
    let unknown = unknown.filter(|name| listed.iter().all(|tool| tool.name != **name));
    let mut problems: Vec<Error> = unknown
        .map(|name| Error::UnknownTool {
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

/// Returns the tools with unique names. Of several with one name none is offered: which of them it would be could change
/// from one process to the next.
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
        same.push(Error::DuplicateName { name, tools });
    }
    (once, same)
}

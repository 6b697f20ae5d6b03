//! Starts MCP servers from settings, where they are built in.

use crate::config::Settings;
use crate::platform::exit::UsageError;
use outlast_session::tools::Tools;
#[cfg(all(unix, feature = "mcp"))]
use {std::pin::pin, std::time::Duration, tokio::time::timeout};

/// The time before a notice about starting servers: some are fetched from the network first.
#[cfg(all(unix, feature = "mcp"))]
const QUIET_PERIOD: Duration = Duration::from_secs(2);

/// Returns an error with a remedy if servers are configured and cannot be used.
pub(crate) fn check(settings: &Settings) -> Result<(), UsageError> {
    let built_in = cfg!(all(unix, feature = "mcp"));
    match settings.servers.first() {
        Some(server) if settings.tools.enabled && !built_in => Err(UsageError(format!(
            "mcp.{}: MCP servers are not built into this outlast; build it with `cargo install --path crates/cli --features mcp` \
             (not on Windows), remove the server from the settings, or use --no-tools",
            server.name
        ))),
        _ => Ok(()),
    }
}

/// Adds the tools of all servers. Problems with a server are reported on stderr.
#[cfg(all(unix, feature = "mcp"))]
pub(crate) async fn with_server_tools(tools: Tools, settings: &Settings) -> Tools {
    let servers = settings.servers.iter();
    let servers = servers
        .map(|server| server_config(server, settings))
        .collect();
    let mut starting = pin!(tools.with_servers(servers));
    let (tools, problems) = match timeout(QUIET_PERIOD, &mut starting).await {
        Ok(started) => started,
        Err(_) => {
            crate::output::diagnostics::print_status("● waiting for the MCP servers to start…");
            starting.await
        }
    };
    for problem in problems {
        crate::print_diagnostic(&format!("warning: {problem}"));
    }
    tools
}

/// Returns the tools unchanged: there are no servers, see [`check`].
#[cfg(not(all(unix, feature = "mcp")))]
pub(crate) fn with_server_tools(tools: Tools, _: &Settings) -> std::future::Ready<Tools> {
    std::future::ready(tools)
}

#[cfg(all(unix, feature = "mcp"))]
fn server_config(
    server: &crate::config::McpServerSettings,
    settings: &Settings,
) -> outlast_session::tools::mcp::ServerConfig {
    use secrecy::ExposeSecret;
    let variables = server.variables.iter();
    outlast_session::tools::mcp::ServerConfig {
        name: server.name.clone(),
        program: server.program.clone(),
        arguments: server.arguments.clone(),
        variables: variables
            .map(|(name, value)| (name.clone(), value.expose_secret().to_owned()))
            .collect(),
        timeout: server.timeout.unwrap_or(settings.tools.timeout),
        effects: server.effects.clone(),
    }
}

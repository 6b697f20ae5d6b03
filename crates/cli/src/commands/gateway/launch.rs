//! `outlast gateway run`: starts a gateway and an agent that uses it.
//!
//! Invariant: the gateway outlives the agent. A Ctrl-C of the terminal reaches the agent directly, and the agent may go
//! on after it; all other signals are forwarded to the agent. We end when the agent does, with its exit code.

use super::agents::{
    Agent, CUSTOM_HEADERS, CodexKey, GatewayEndpoint, Variable, agent_setup, pi_extension,
};
use super::log::{self, Traces};
use super::start::{Audience, StartedGateway, start};
use crate::args::{AgentName, LaunchArguments};
use crate::config::{self, Settings, Warnings};
use crate::platform::clock;
use crate::platform::exit::{Exit, UsageError};
use crate::platform::runtime;
use crate::platform::signals::{Signal, SignalStream};
use anyhow::Context;
use outlast_engine::Clock;
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;
use tempfile::NamedTempFile;
use tokio::process::{Child, Command};

/// The time limit for the gateway's shutdown: the agent has ended, so no client is left.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
const ANY_PORT: &str = "127.0.0.1:0";

pub(super) fn run(arguments: &LaunchArguments) -> anyhow::Result<Exit> {
    let mut flags = arguments.flags.overrides();
    flags.push(("gateway.listen", ANY_PORT.to_owned()));
    let (settings, _) = config::load_for_gateway(&flags, Warnings::Print)?;
    let clock: Arc<dyn Clock> = Arc::new(clock::clock()?);
    runtime::run(async {
        // Listen before the program starts: a Ctrl-C from here on is the program's business, too.
        let signals = SignalStream::new();
        let (log, traces) = Traces::attach(log::sink(arguments.log)?, &settings[0])?;
        let started = start(&settings, Audience::Program, clock, log).await?;
        let ended = launch(&arguments.program, &settings, &started, signals).await;
        started.stop.cancel();
        tokio::time::timeout(SHUTDOWN_TIMEOUT, started.serving)
            .await
            .ok();
        traces.end().await;
        ended
    })
}

async fn launch(
    program: &[OsString],
    settings: &[Settings; 2],
    started: &StartedGateway,
    signals: SignalStream,
) -> anyhow::Result<Exit> {
    let (name, typed) = program
        .split_first()
        .ok_or_else(|| UsageError("there is no program to run".to_owned()))?;
    let url = started.running.url();
    let base = GatewayEndpoint::new(&url, &settings[0].gateway.openai);
    let agent = Agent::from_program(name);
    let recipe = agent_setup(agent, base, codex_key());
    let extension = write_pi_extension(agent, typed, base, started)?;
    let mut command = Command::new(name);
    command
        .args(recipe.arguments)
        .args(
            extension
                .iter()
                .flat_map(|file| [OsStr::new("-e"), file.path().as_os_str()]),
        )
        .args(typed)
        .envs(recipe.variables.into_iter().map(with_user_headers))
        .envs(no_proxy_variables(|name| std::env::var(name).ok()));
    let problem = || {
        let name = Path::new(name).display();
        format!("cannot start `{name}`; it must be installed, and on the PATH")
    };
    let child = command.spawn().with_context(problem)?;
    wait(child, signals).await
}

/// Waits for the program, and forwards the signals that do not reach it directly.
async fn wait(mut child: Child, mut signals: SignalStream) -> anyhow::Result<Exit> {
    loop {
        tokio::select! {
            ended = child.wait() => return Ok(exit_from_status(ended?)),
            signal = signals.next() => {
                let comes_by_itself = signal == Signal::Interrupt && std::io::stdin().is_terminal();
                if let (false, Some(id)) = (comes_by_itself, child.id()) {
                    forward_signal(signal, id);
                }
            }
        }
    }
}

#[cfg(unix)]
fn forward_signal(signal: Signal, process: u32) {
    use nix::sys::signal::{Signal as Number, kill};
    let number = match signal {
        Signal::Interrupt => Number::SIGINT,
        Signal::HangUp => Number::SIGHUP,
        Signal::Terminate => Number::SIGTERM,
    };
    if let Ok(process) = i32::try_from(process) {
        // The program may have ended just now.
        kill(nix::unistd::Pid::from_raw(process), number).ok();
    }
}

#[cfg(not(unix))]
fn forward_signal(_: Signal, _: u32) {}

/// Converts the exit status of the program to the exit code that a shell would report.
fn exit_from_status(status: ExitStatus) -> Exit {
    let code = status.code().or_else(|| signal_exit_code(status));
    Exit::Program(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

#[cfg(unix)]
fn signal_exit_code(status: ExitStatus) -> Option<i32> {
    let signal = std::os::unix::process::ExitStatusExt::signal(&status)?;
    Some(128 + signal)
}

#[cfg(not(unix))]
fn signal_exit_code(_: ExitStatus) -> Option<i32> {
    None
}

/// Returns the key that Codex would use by itself: its login, or without one the variable that other programs read.
fn codex_key() -> CodexKey {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let folder = std::env::var_os("CODEX_HOME").map(PathBuf::from);
    let folder = folder.or_else(|| Some(std::env::home_dir()?.join(".codex")));
    let is_logged_in = folder.is_some_and(|folder| folder.join("auth.json").exists());
    match is_logged_in || is_set("CODEX_API_KEY") || !is_set("OPENAI_API_KEY") {
        true => CodexKey::Login,
        false => CodexKey::Variable,
    }
}

/// Creates pi's extension file, if the program is pi and is about to call a model. It is removed with the returned handle.
fn write_pi_extension(
    agent: Agent,
    typed: &[OsString],
    base: GatewayEndpoint<'_>,
    started: &StartedGateway,
) -> anyhow::Result<Option<NamedTempFile>> {
    const COMMANDS: [&str; 6] = ["install", "remove", "uninstall", "update", "list", "config"];
    let is_command = |word: &OsString| COMMANDS.iter().any(|command| word == command);
    if agent != Agent::Known(AgentName::Pi) || typed.first().is_some_and(is_command) {
        return Ok(None);
    }
    let home = &started.home;
    let name = format!("gateway-{}.mjs", started.running.address.port());
    // A gateway that was killed may have left one.
    std::fs::remove_file(home.join(&name)).ok();
    let mut form = tempfile::Builder::new();
    let written = form
        .prefix(&name)
        .rand_bytes(0)
        .tempfile_in(home)
        .and_then(|mut file| {
            file.write_all(pi_extension(base).as_bytes())?;
            Ok(Some(file))
        });
    written.with_context(|| format!("cannot write to {}", home.display()))
}

/// Converts a variable to a name and a value; the user's own headers are kept.
fn with_user_headers(variable: Variable) -> (&'static str, String) {
    let own = std::env::var(CUSTOM_HEADERS);
    let own = own.ok().filter(|_| variable.name == CUSTOM_HEADERS);
    let value = match own.filter(|own| !own.is_empty()) {
        Some(own) => format!("{own}\n{}", variable.value),
        None => variable.value,
    };
    (variable.name, value)
}

/// Returns variables that exempt this machine from a configured proxy.
fn no_proxy_variables(variable: impl Fn(&str) -> Option<String>) -> Vec<(&'static str, String)> {
    let proxies = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];
    if proxies.iter().all(|name| variable(name).is_none()) {
        return Vec::new();
    }
    let own = variable("no_proxy").or_else(|| variable("NO_PROXY"));
    let own = own.filter(|hosts| !hosts.is_empty());
    let hosts = own.map_or_else(
        || "127.0.0.1".to_owned(),
        |hosts| format!("{hosts},127.0.0.1"),
    );
    vec![("no_proxy", hosts.clone()), ("NO_PROXY", hosts)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_includes_loopback_when_proxy_is_set() {
        let with = |known: &'static [(&str, &str)]| {
            no_proxy_variables(move |name| {
                let found = known.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(with(&[("no_proxy", "a")]), []);
        let hosts = "127.0.0.1".to_owned();
        let table = [("no_proxy", hosts.clone()), ("NO_PROXY", hosts)];
        assert_eq!(with(&[("HTTP_PROXY", "http://proxy")]), table);
        let both = with(&[("ALL_PROXY", "http://proxy"), ("NO_PROXY", "a,b")]);
        assert_eq!(both[0].1, "a,b,127.0.0.1");
    }

    #[test]
    fn agent_is_recognized_by_program_file_name() {
        let table = [
            ("claude", Agent::Known(AgentName::Claude)),
            ("/opt/x/codex", Agent::Known(AgentName::Codex)),
            ("./pi", Agent::Known(AgentName::Pi)),
            ("opencode.exe", Agent::Known(AgentName::Opencode)),
            ("claude-squad", Agent::Unknown),
            ("python3", Agent::Unknown),
        ];
        for (program, agent) in table {
            assert_eq!(Agent::from_program(OsStr::new(program)), agent, "{program}");
        }
    }
}

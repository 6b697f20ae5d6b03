//! `outlast gateway env`: prints the variables that point an agent at the gateway.

use super::agents::{
    Agent, AgentSetup, CHATGPT_HOST, CHATGPT_PATH, CodexKey, GatewayEndpoint, OPENAI_PATH,
    agent_setup,
};
use crate::args::{AgentName, EnvFormat, GatewaySelector};
use crate::commands::gateway::registry;
use crate::config::{self, GatewaySettings, Upstream, Warnings, url};
use crate::output::print;
use crate::platform::exit::Exit;
use crate::platform::home;
use serde_json::{Map, Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

/// The note for gateways that use stored accounts: they may ask for a key of their own.
const NEEDS_KEY: &str =
    "This gateway uses stored accounts: the agent's key is one of gateway.client_keys.";

pub(super) fn run(
    agent: AgentName,
    which: GatewaySelector,
    shell: EnvFormat,
) -> anyhow::Result<Exit> {
    let flags: [(&str, &str); 0] = [];
    let ([settings, _], _) = config::load_for_gateway(&flags, Warnings::Print)?;
    let gateway = &settings.gateway;
    let address = address(&home::path()?, which, gateway);
    let base = GatewayEndpoint {
        url: &registry::url(address),
        openai_path: openai_path(&gateway.openai),
    };
    let mut recipe = agent_setup(Agent::Known(agent), base, CodexKey::Login);
    if gateway.use_accounts && !gateway.client_keys.is_empty() {
        recipe.notes.push(NEEDS_KEY);
    }
    print(&render(&recipe, shell))
}

/// Returns the address of the running gateway, else the address that one would listen on.
fn address(home: &Path, which: GatewaySelector, settings: &GatewaySettings) -> SocketAddr {
    if let Some(port) = which.port {
        return SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    }
    let mut running = registry::running(home);
    running.retain(|one| !one.for_program);
    let usual = |one: &&registry::RunningGateway| one.address == settings.listen;
    let chosen = running.iter().find(usual).or_else(|| running.first());
    chosen.map_or(settings.listen, |one| one.address)
}

/// Returns the prefix of OpenAI's paths at the given upstream.
pub(super) fn openai_path(upstream: &Upstream) -> &'static str {
    match upstream {
        Upstream::Url(text) if url::host_and_port(text) == CHATGPT_HOST => CHATGPT_PATH,
        _ => OPENAI_PATH,
    }
}

fn render(recipe: &AgentSetup, shell: EnvFormat) -> String {
    match shell {
        EnvFormat::Json => format!("{:#}\n", as_json(recipe)),
        EnvFormat::Sh => render_for_shell(recipe, |name, value| {
            format!("export {name}={}", quote_sh(value))
        }),
        EnvFormat::Fish => render_for_shell(recipe, |name, value| {
            format!("set -gx {name} {}", quote_fish(value))
        }),
    }
}

fn render_for_shell(recipe: &AgentSetup, line: fn(&str, &str) -> String) -> String {
    let mut text = String::new();
    for variable in &recipe.variables {
        if let Some(why) = variable.reason {
            text += &format!("# {why}\n");
        }
        text += &format!("{}\n", line(variable.name, &variable.value));
    }
    for note in &recipe.notes {
        text += &format!("# {note}\n");
    }
    if let Some(snippet) = &recipe.snippet {
        text += &format!("# In {}:\n{}", snippet.file, snippet.text);
    }
    text
}

fn as_json(recipe: &AgentSetup) -> Value {
    let variables = recipe.variables.iter();
    let variables = variables.map(|one| (one.name.to_owned(), one.value.clone().into()));
    let mut all = json!({ "environment": variables.collect::<Map<_, _>>() });
    if !recipe.arguments.is_empty() {
        all["arguments"] = json!(recipe.arguments);
    }
    if let Some(snippet) = &recipe.snippet {
        all["file"] = json!({ "path": snippet.file, "text": snippet.text });
    }
    if !recipe.notes.is_empty() {
        all["notes"] = json!(recipe.notes);
    }
    all
}

/// Reports whether a shell takes the value without quotes.
fn is_plain(value: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./:@%+,-".contains(c);
    !value.is_empty() && value.chars().all(plain)
}

fn quote_sh(value: &str) -> String {
    match is_plain(value) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\'', r"'\''")),
    }
}

fn quote_fish(value: &str) -> String {
    match is_plain(value) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\\', r"\\").replace('\'', r"\'")),
    }
}

#[cfg(test)]
#[path = "env_tests.rs"]
mod tests;

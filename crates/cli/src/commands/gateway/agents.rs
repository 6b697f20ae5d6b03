//! How each agent is pointed at a gateway, as found out by running the programs themselves.
//!
//! `outlast gateway env` prints it; nothing here sets anything. An agent that has no variable for the address of its provider has
//! arguments or a file for it.

use crate::args::{AgentName, EnvFormat, GatewaySelector};
use crate::commands::gateway::registry;
use crate::config::{self, GatewaySettings, Upstream, Warnings, url};
use crate::output::print;
use crate::platform::exit::Exit;
use crate::platform::home;
use serde_json::{Map, Value, json};
use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

/// An agent program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Agent {
    Known(AgentName),
    /// A program without a recipe of its own; it gets the usual variables.
    Unknown,
}

impl Agent {
    /// Recognises the agent by the file name of its program.
    pub(super) fn from_program(program: &OsStr) -> Self {
        let name = Path::new(program).file_stem().unwrap_or_default();
        Self::Known(match name.to_str() {
            Some("claude") => AgentName::Claude,
            Some("codex") => AgentName::Codex,
            Some("opencode") => AgentName::Opencode,
            Some("aider") => AgentName::Aider,
            Some("pi") => AgentName::Pi,
            _ => return Self::Unknown,
        })
    }
}

/// An environment variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    pub(super) name: &'static str,
    pub(super) value: String,
    /// The reason for the variable, if its name does not say it.
    pub(super) reason: Option<&'static str>,
}

/// Text to add to one of the agent's own files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Snippet {
    /// The path of the file.
    pub(super) file: &'static str,
    pub(super) text: String,
}

/// The settings that point an agent at the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AgentSetup {
    pub(super) variables: Vec<Variable>,
    /// Arguments to put before all others.
    pub(super) arguments: Vec<String>,
    pub(super) snippet: Option<Snippet>,
    /// Notes for a person.
    pub(super) notes: Vec<&'static str>,
}

/// The source of the key that Codex sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodexKey {
    /// The login of `codex login`.
    Login,
    /// The variable `OPENAI_API_KEY`.
    Variable,
}

/// The address of a gateway, as agents are configured with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct GatewayEndpoint<'a> {
    /// The address without a path.
    pub(super) url: &'a str,
    /// The prefix of OpenAI's paths: the API version, or the prefix for a ChatGPT login.
    pub(super) openai_path: &'a str,
}

/// The prefix of OpenAI's paths, except those of a ChatGPT login.
const OPENAI_PATH: &str = "/v1";
/// The path that Codex requests when it is logged in with ChatGPT; the gateway's upstream is then <https://chatgpt.com>.
const CHATGPT_PATH: &str = "/backend-api/codex";
const CHATGPT_HOST: &str = "chatgpt.com";

impl<'a> GatewayEndpoint<'a> {
    /// Creates the endpoint of the gateway at that address whose requests for OpenAI go to the given upstream.
    pub(super) fn new(url: &'a str, openai: &Upstream) -> Self {
        Self {
            url,
            openai_path: match openai {
                Upstream::Url(text) if url::host_and_port(text) == CHATGPT_HOST => CHATGPT_PATH,
                _ => OPENAI_PATH,
            },
        }
    }

    pub(super) fn openai(&self) -> String {
        format!("{}{}", self.url, self.openai_path)
    }
}

fn variable(name: &'static str, value: impl Into<String>) -> Variable {
    Variable {
        name,
        value: value.into(),
        reason: None,
    }
}

fn variable_with_reason(name: &'static str, value: &str, why: &'static str) -> Variable {
    Variable {
        reason: Some(why),
        ..variable(name, value)
    }
}

/// Returns the settings that point the given agent at the gateway.
pub(super) fn agent_setup(agent: Agent, base: GatewayEndpoint<'_>, key: CodexKey) -> AgentSetup {
    let anthropic = || variable("ANTHROPIC_BASE_URL", base.url);
    let openai = || variable("OPENAI_BASE_URL", base.openai());
    let openai_old = || variable("OPENAI_API_BASE", base.openai());
    let only = |variables| AgentSetup {
        variables,
        ..AgentSetup::default()
    };
    match agent {
        Agent::Known(AgentName::Claude) => claude(base),
        Agent::Known(AgentName::Codex) => codex(base, key),
        Agent::Known(AgentName::Opencode) => opencode(base),
        Agent::Known(AgentName::Pi) => pi(base),
        Agent::Known(AgentName::Aider) => {
            only(vec![variable("ANTHROPIC_API_BASE", base.url), openai_old()])
        }
        Agent::Known(AgentName::Openai) => only(vec![openai()]),
        Agent::Known(AgentName::Anthropic) => only(vec![anthropic()]),
        Agent::Unknown => only(vec![anthropic(), openai(), openai_old()]),
    }
}

/// The variable with headers that Claude Code sends with every request, one on each line.
pub(super) const CUSTOM_HEADERS: &str = "ANTHROPIC_CUSTOM_HEADERS";

fn claude(base: GatewayEndpoint<'_>) -> AgentSetup {
    AgentSetup {
        variables: vec![
            variable("ANTHROPIC_BASE_URL", base.url),
            variable_with_reason(
                "CLAUDE_STREAM_IDLE_TIMEOUT_MS",
                "43200000",
                "It believes in 30 signs of life in a row, and then waits for as long as this (5 minutes without it).",
            ),
            variable_with_reason(
                CUSTOM_HEADERS,
                "x-outlast-client: claude-code-patient",
                "Tells the gateway that it was started like this. Further headers can stand on lines of their own.",
            ),
            variable_with_reason(
                "API_TIMEOUT_MS",
                "3600000",
                "How long the head of an answer may take (10 minutes without it).",
            ),
        ],
        ..AgentSetup::default()
    }
}

/// Configures the gateway as a provider of its own: Codex does not read OPENAI_BASE_URL, and with `openai_base_url` it
/// tries a WebSocket seven times first.
fn codex(base: GatewayEndpoint<'_>, key: CodexKey) -> AgentSetup {
    let credential = match key {
        CodexKey::Login => "requires_openai_auth=true",
        CodexKey::Variable => "env_key=\"OPENAI_API_KEY\"",
    };
    let settings = [
        "name=\"Outlast\"".to_owned(),
        format!("base_url=\"{}\"", base.openai()),
        "wire_api=\"responses\"".to_owned(),
        credential.to_owned(),
    ];
    let choice = "model_provider=\"outlast\"".to_owned();
    let typed = settings.iter();
    let typed = typed.map(|setting| format!("model_providers.outlast.{setting}"));
    let typed = std::iter::once(choice).chain(typed);
    let lines = settings.iter().map(|line| line.replacen('=', " = ", 1));
    let lines: Vec<String> = lines.collect();
    AgentSetup {
        arguments: typed.flat_map(|one| ["-c".to_owned(), one]).collect(),
        snippet: Some(Snippet {
            file: "~/.codex/config.toml",
            text: format!(
                "model_provider = \"outlast\"    # at the top, before the first table\n\n\
                 [model_providers.outlast]\n{}\n",
                lines.join("\n")
            ),
        }),
        notes: vec![
            "The key is that of `codex login`; with env_key = \"OPENAI_API_KEY\" in place of requires_openai_auth it is that variable's.",
            "Logged in with ChatGPT: set gateway.openai_upstream = \"https://chatgpt.com\", and /backend-api/codex for /v1 in base_url.",
        ],
        ..AgentSetup::default()
    }
}

fn opencode(base: GatewayEndpoint<'_>) -> AgentSetup {
    let at = |url: String| json!({ "options": { "baseURL": url } });
    let settings = json!({ "provider": {
        "anthropic": at(format!("{}/v1", base.url)),
        "openai": at(base.openai()),
    } });
    AgentSetup {
        variables: vec![variable_with_reason(
            "OPENCODE_CONFIG_CONTENT",
            &settings.to_string(),
            "Added to its own settings. It can stand in ~/.config/opencode/opencode.json as well.",
        )],
        ..AgentSetup::default()
    }
}

/// Returns the provider settings for pi. It sends no user agent of its own, hence the header.
fn pi_providers(base: GatewayEndpoint<'_>) -> Value {
    let at = |url: String| json!({ "baseUrl": url, "headers": { "x-outlast-client": "pi" } });
    json!({ "anthropic": at(base.url.to_owned()), "openai": at(base.openai()) })
}

fn pi(base: GatewayEndpoint<'_>) -> AgentSetup {
    let settings = json!({ "providers": pi_providers(base) });
    AgentSetup {
        snippet: Some(Snippet {
            file: "~/.pi/agent/models.json",
            text: format!("{settings:#}\n"),
        }),
        ..AgentSetup::default()
    }
}

/// Returns an extension for pi that sets the same providers for one run.
pub(super) fn pi_extension(base: GatewayEndpoint<'_>) -> String {
    let providers = pi_providers(base);
    format!(
        "export default function (pi) {{\n  \
         for (const [name, settings] of Object.entries({providers})) pi.registerProvider(name, settings);\n}}\n"
    )
}

// --- `outlast gateway env` ---

/// The note for gateways that use stored accounts: they may ask for a key of their own.
const NEEDS_KEY: &str =
    "This gateway uses stored accounts: the agent's key is one of gateway.client_keys.";

/// Prints the settings that point an agent at the gateway.
pub(super) fn print_env(
    agent: AgentName,
    which: GatewaySelector,
    shell: EnvFormat,
) -> anyhow::Result<Exit> {
    let flags: [(&str, &str); 0] = [];
    let ([settings, _], _) = config::load_for_gateway(&flags, Warnings::Print)?;
    let gateway = &settings.gateway;
    let address = address(&home::path()?, which, gateway);
    let url = registry::url(address);
    let base = GatewayEndpoint::new(&url, &gateway.openai);
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
#[path = "agents_tests.rs"]
mod tests;

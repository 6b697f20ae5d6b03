//! The table of settings: the one description of the contents of `outlast.toml`.
//!
//! Reading, checking, origins, secrets, trust, variables of the environment and the JSON Schema all come from it.
//! Invariant: a setting that can send a request or a key elsewhere is restricted: all are but those that are named here.
//! Not here: rows of the servers (`sections::gateway`, `sections::serve`), kinds of values (`kind`), typed settings (`settings`).

pub(crate) use super::kind::Kind;
pub(crate) use super::placeholder::Placeholder;
use super::sections::gateway::GATEWAY;
use super::sections::serve::SERVE;
use outlast_kernel::fallback::Condition;
use outlast_kernel::model_info::ContinueBy;
use outlast_kernel::policy::Policy;
use outlast_session::hooks::HookEvent;

pub(crate) const PROVIDERS: [&str; 4] = ["mock", "anthropic", "openai", "openai-responses"];
/// The providers that are reached over the network.
pub(crate) const REMOTE_PROVIDERS: &[&str] = &["anthropic", "openai", "openai-responses"];
pub(crate) const AFTER_CONTENT: [&str; 3] = ["fail", "retract", "continue"];
const CONDITIONS: &[&str] = &[
    Condition::Overload.as_str(),
    Condition::UsageLimit.as_str(),
    Condition::HardError.as_str(),
    Condition::Refusal.as_str(),
    Condition::Overflow.as_str(),
];
const CONTINUE_MODES: &[&str] = &[
    ContinueBy::Resume.as_str(),
    ContinueBy::Prefill.as_str(),
    ContinueBy::Prompt.as_str(),
    ContinueBy::Restart.as_str(),
];

const HOOK_EVENTS: &[&str] = &[
    HookEvent::AutoRetryStart.as_str(),
    HookEvent::AutoRetryEnd.as_str(),
    HookEvent::TurnEnd.as_str(),
    HookEvent::ToolStart.as_str(),
    HookEvent::ToolEnd.as_str(),
    HookEvent::AccountBlocked.as_str(),
    HookEvent::SessionStopped.as_str(),
];
/// The longest time limit of a hook, in seconds.
const MAX_HOOK_SECONDS: u32 = 600;

/// The settings, and tables of settings, that the file of a project that is not trusted may have.
const UNRESTRICTED: [&str; 13] = [
    "provider",
    "model",
    "max_tokens",
    "retry",
    "after_content",
    "recovery",
    "compaction.enabled",
    "compaction.threshold",
    "compaction.keep",
    "timeouts",
    "models.<model>.timeouts",
    "models.<model>.context_window",
    "models.<model>.continue_by",
];

#[derive(Clone, Copy)]
pub(crate) struct Setting {
    /// The path in the file. A segment in `<…>` stands for a name; see [`Placeholder`].
    pub(crate) path: &'static str,
    pub(crate) kind: Kind,
    pub(crate) description: &'static str,
    /// The default, written as on a command line.
    pub(crate) default: Option<&'static str>,
    /// The variables of the setting; the first one that is set counts.
    pub(crate) variables: &'static [Variable],
    pub(crate) flag: Option<&'static str>,
    /// Must be in every table of its list.
    pub(crate) required: bool,
}

pub(crate) struct Variable {
    pub(crate) name: &'static str,
    /// The value of the path's placeholder (such as a provider) that the variable is for; `None` if it is for all.
    pub(crate) provider: Option<&'static str>,
}

pub(super) const fn setting(path: &'static str, kind: Kind, description: &'static str) -> Setting {
    Setting {
        path,
        kind,
        description,
        default: None,
        variables: &[],
        flag: None,
        required: false,
    }
}

impl Setting {
    pub(super) const fn default(mut self, text: &'static str) -> Self {
        self.default = Some(text);
        self
    }

    pub(super) const fn variables(mut self, variables: &'static [Variable]) -> Self {
        self.variables = variables;
        self
    }

    pub(super) const fn flag(mut self, flag: &'static str) -> Self {
        self.flag = Some(flag);
        self
    }

    const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('.')
    }

    pub(crate) fn has_free_name(&self) -> bool {
        self.segments()
            .any(|segment| Placeholder::parse(segment).is_some())
    }

    /// Reports whether the setting is ignored in the file of a project that is not trusted.
    pub(crate) fn is_restricted(&self) -> bool {
        let is_below = |table: &&str| {
            let rest = self.path.strip_prefix(*table);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        !UNRESTRICTED.iter().any(is_below)
    }
}

pub(super) const fn variable(name: &'static str) -> Variable {
    Variable {
        name,
        provider: None,
    }
}

const fn provider_variable(provider: &'static str, name: &'static str) -> Variable {
    Variable {
        name,
        provider: Some(provider),
    }
}

/// Returns all settings.
pub(crate) fn settings() -> impl Iterator<Item = &'static Setting> {
    COMMON.iter().chain(GATEWAY).chain(SERVE)
}

const COMMON: &[Setting] = &[
    setting("provider", Kind::Choice(&PROVIDERS), "Provider; the scripted provider `mock` by default.")
        .variables(&[variable("OUTLAST_PROVIDER")])
        .flag("--provider"),
    setting("model", Kind::Text, "Model.")
        .variables(&[variable("OUTLAST_MODEL")])
        .flag("--model"),
    setting("max_tokens", Kind::COUNT, "Maximum number of output tokens of a response."),
    setting("retry.enabled", Kind::Flag, "Enables retries.").default("true"),
    setting("retry.policy", Kind::Choice(&Policy::NAMES), "Retry policy; see `outlast policy list`.")
        .default("session")
        .variables(&[variable("OUTLAST_POLICY")])
        .flag("--policy"),
    setting(
        "retry.wait_for_reset",
        Kind::Flag,
        "Waits for the reset time that the provider states, however far away it is.",
    )
    .default("false"),
    setting(
        "retry.max_retries",
        Kind::COUNT,
        "Maximum number of retries, overriding the policy.",
    ),
    setting(
        "retry.base_delay_ms",
        Kind::COUNT,
        "First delay in milliseconds, overriding the policy.",
    ),
    setting(
        "retry.max_delay",
        Kind::Duration,
        "Maximum delay, and maximum wait that a provider may request, overriding the policy; 0 means no limit.",
    ),
    setting(
        "after_content",
        Kind::Choice(&AFTER_CONTENT),
        "Treatment of a response that breaks off: fail the turn, retract the response and send the request again, or continue it where it broke off.",
    )
    .default("retract")
    .flag("--after-content"),
    setting(
        "recovery.retry_unusable_responses",
        Kind::Flag,
        "Reports an unusable response (empty, cut off in a tool call, or a tool call that is only announced) to the model, and repeats the request.",
    )
    .default("true"),
    setting(
        "fallback.models",
        Kind::List(&Kind::Model),
        "Fallback models, in order: `MODEL`, or `PROVIDER:MODEL` for another provider.",
    )
    .flag("--fallback"),
    setting("fallback.on", Kind::List(&Kind::Choice(CONDITIONS)), "Conditions for a fallback to another model.")
        .default("overload, usage_limit, hard_error, refusal, overflow"),
    setting(
        "fallback.overload_retries",
        Kind::Integer(0, u32::MAX),
        "Number of retries on an overloaded model before the fallback.",
    )
    .default("2"),
    setting(
        "fallback.max_usage_limit_wait",
        Kind::Duration,
        "Maximum wait for the end of a usage limit; beyond it, a fallback model is used.",
    )
    .default("5m"),
    setting(
        "fallback.cooldown",
        Kind::Duration,
        "Time for which a model is avoided after a fallback, if the provider states none.",
    )
    .default("5m"),
    setting(
        "compaction.enabled",
        Kind::Flag,
        "Compacts a conversation that becomes too large; `/compact` works without it.",
    )
    .default("true"),
    setting(
        "compaction.threshold",
        Kind::Integer(1, 99),
        "Percentage of the model's context window at which the conversation is compacted.",
    )
    .default("85"),
    setting(
        "compaction.keep",
        Kind::COUNT,
        "Approximate number of the newest tokens that stay unchanged.",
    )
    .default("20000"),
    setting(
        "compaction.model",
        Kind::Model,
        "Model that writes the summary, `MODEL` or `PROVIDER:MODEL`. If it is not set or fails, the models of the session do.",
    ),
    setting(
        "limits.deadline",
        Kind::Duration,
        "Maximum duration of a prompt, including waits and tools; 0 means no limit.",
    )
    .default("0s")
    .flag("--deadline"),
    setting(
        "limits.sleep",
        Kind::Duration,
        "Maximum total wait of a prompt, over all retries; 0 means the limit of the policy.",
    )
    .default("0s"),
    setting(
        "limits.cost",
        Kind::Amount,
        "Maximum cost of a prompt in dollars; once it is reached, no further request is sent. Requires the price of the model; 0 means no limit.",
    ),
    setting("tools.enabled", Kind::Flag, "Allows the model to use tools.")
        .default("true"),
    setting(
        "tools.allow",
        Kind::Text,
        "Tools that may run without approval, separated by commas: write, edit, bash, outside (files outside of the folder), mcp (the tools of all MCP servers), the name of a server or of one of its tools.",
    )
    .flag("--allow"),
    setting("tools.timeout", Kind::Duration, "Maximum duration of a tool call.")
        .default("10m"),
    setting(
        "mcp.<server>.command",
        Kind::Text,
        "Command that starts an MCP server, whose tools the model may use: a program and its arguments, quoted as in a shell, but run without one.",
    ),
    setting(
        "mcp.<server>.env.<variable>",
        Kind::Credential,
        "Environment variable that only this server gets.",
    ),
    setting(
        "mcp.<server>.timeout",
        Kind::Duration,
        "Maximum duration of a call to the server, by default tools.timeout, which applies in any case.",
    ),
    setting(
        "mcp.<server>.effects",
        Kind::Text,
        "Effects of running a tool of the server twice, such as `search=pure, save=idempotent`: these tools run again after a restart interrupted them, all others do not.",
    ),
    setting(
        "hooks.<number>.on",
        Kind::NonEmptyList(&Kind::Choice(HOOK_EVENTS)),
        "Events that run the hook. A hook is a command that reads the event as a line of JSON.",
    )
    .required(),
    setting(
        "hooks.<number>.command",
        Kind::Text,
        "Command, run by a shell in the folder of the session. Its stdout is discarded; its stderr is shown if it fails.",
    )
    .required(),
    setting(
        "hooks.<number>.timeout",
        Kind::DurationUpTo(MAX_HOOK_SECONDS),
        "Maximum duration of the hook, 10 seconds by default; then it is killed with all processes that it started.",
    ),
    setting("timeouts.connect", Kind::Duration, "Maximum time to connect.").default("10s"),
    setting("timeouts.headers", Kind::Duration, "Maximum time until the response headers.").default("5m"),
    setting("timeouts.first_event", Kind::Duration, "Maximum time until the first event of a streamed response.")
        .default("5m"),
    setting("timeouts.idle", Kind::Duration, "Maximum pause within a streamed response.").default("5m"),
    setting("models.<model>.price.input", Kind::Amount, "Price of a million input tokens, in dollars."),
    setting("models.<model>.price.output", Kind::Amount, "Price of a million output tokens, in dollars."),
    setting(
        "models.<model>.price.cache_read",
        Kind::Amount,
        "Price of a million tokens that are read from the cache, in dollars; by default that of input tokens.",
    ),
    setting(
        "models.<model>.price.cache_write",
        Kind::Amount,
        "Price of a million tokens that are written to the cache, in dollars; by default that of input tokens.",
    ),
    setting("models.<model>.timeouts.connect", Kind::Duration, "Overrides timeouts.connect for one model."),
    setting("models.<model>.timeouts.headers", Kind::Duration, "Overrides timeouts.headers for one model."),
    setting(
        "models.<model>.timeouts.first_event",
        Kind::Duration,
        "Overrides timeouts.first_event for one model.",
    ),
    setting("models.<model>.timeouts.idle", Kind::Duration, "Overrides timeouts.idle for one model."),
    setting(
        "models.<model>.context_window",
        Kind::COUNT,
        "Maximum number of tokens of a request and its response together, if Outlast does not know it or has a wrong value.",
    ),
    setting(
        "models.<model>.continue_by",
        Kind::Choice(CONTINUE_MODES),
        "Continuation of a response that broke off: resume the provider's stream, prefill the response so far, ask for the rest in a prompt, or restart.",
    ),
    setting(
        "models.<model>.fallback",
        Kind::List(&Kind::Model),
        "Fallback models of this model, instead of fallback.models.",
    ),
    setting("providers.<provider>.base_url", Kind::Url, "Base URL of the provider's API.")
        .variables(&[
            provider_variable("anthropic", "ANTHROPIC_BASE_URL"),
            provider_variable("openai", "OPENAI_BASE_URL"),
            provider_variable("openai-responses", "OPENAI_BASE_URL"),
        ]),
    setting("providers.<provider>.api_key", Kind::Credential, "API key.")
        .variables(&[
            provider_variable("anthropic", "ANTHROPIC_API_KEY"),
            provider_variable("openai", "OPENAI_API_KEY"),
            provider_variable("openai-responses", "OPENAI_API_KEY"),
        ]),
    setting(
        "providers.<provider>.api_key_env",
        Kind::VariableName,
        "Environment variable that holds the API key, instead of the provider's usual one.",
    ),
    setting("providers.<provider>.headers.<header>", Kind::Credential, "Header that is added to every request."),
    setting("accounts.<account>.provider", Kind::Choice(REMOTE_PROVIDERS), "Provider of the account."),
    setting(
        "accounts.<account>.api_key_env",
        Kind::VariableName,
        "Environment variable that holds the account's API key.",
    ),
    setting("accounts.<account>.api_key_file", Kind::Path, "File that holds the account's API key."),
    setting(
        "accounts.<account>.api_key_command",
        Kind::Text,
        "Command that prints the account's API key; run again when the key was refused.",
    ),
    setting(
        "accounts.<account>.max_in_flight",
        Kind::COUNT,
        "Maximum number of concurrent requests with the account, over all processes.",
    ),
    setting(
        "http.proxy",
        Kind::Proxy,
        "Proxy for every request. A later layer overrides an earlier one; within a layer, http.proxy_http and http.proxy_https override this.",
    )
    .variables(&[variable("all_proxy"), variable("ALL_PROXY")]),
    setting("http.proxy_http", Kind::Proxy, "Proxy for requests to http:// addresses only.")
        .variables(&[variable("http_proxy"), variable("HTTP_PROXY")]),
    setting("http.proxy_https", Kind::Proxy, "Proxy for requests to https:// addresses only.")
        .variables(&[variable("https_proxy"), variable("HTTPS_PROXY")]),
    setting(
        "http.no_proxy",
        Kind::Text,
        "Hosts that are reached without a proxy, separated by commas; `*` means all.",
    )
    .variables(&[variable("no_proxy"), variable("NO_PROXY")]),
    setting("http.ca_file", Kind::Path, "File of additional certificates to trust, in PEM.")
        .variables(&[variable("OUTLAST_CA_FILE")]),
];

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;

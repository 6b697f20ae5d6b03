//! The table of settings: the one description of the contents of `outlast.toml`.
//!
//! Reading, checking, origins, secrets, trust, variables of the environment and the JSON Schema all come from it.
//! Invariant: a setting that can send a request or a key elsewhere is `restricted`; one that holds a key is `secret`.
//! Not here: rows of the servers (`gateway_table`, `serve_table`), forms of values (`value`), typed settings (`settings`).

pub(crate) use super::kind::Kind;
pub(crate) use super::placeholder::Placeholder;
use super::sections::gateway_table::GATEWAY;
use super::sections::serve_table::SERVE;
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
    /// Never shown.
    pub(crate) secret: bool,
    /// Ignored in the file of a project that is not trusted.
    pub(crate) restricted: bool,
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
        secret: false,
        restricted: false,
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

    pub(super) const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    pub(super) const fn restricted(mut self) -> Self {
        self.restricted = true;
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

/// All settings.
pub(crate) const SETTINGS: &[Setting] =
    &concat_tables::<{ COMMON.len() + GATEWAY.len() + SERVE.len() }>();

const fn concat_tables<const LENGTH: usize>() -> [Setting; LENGTH] {
    let mut all = [COMMON[0]; LENGTH];
    let mut index = 0;
    while index < LENGTH {
        let (gateway, serve) = (COMMON.len(), COMMON.len() + GATEWAY.len());
        all[index] = if index < gateway {
            COMMON[index]
        } else if index < serve {
            GATEWAY[index - gateway]
        } else {
            SERVE[index - serve]
        };
        index += 1;
    }
    all
}

const COMMON: &[Setting] = &[
    setting("provider", Kind::Choice(&PROVIDERS), "Who answers; without it the scripted provider does.")
        .variables(&[variable("OUTLAST_PROVIDER")])
        .flag("--provider"),
    setting("model", Kind::Text, "The model that is asked.")
        .variables(&[variable("OUTLAST_MODEL")])
        .flag("--model"),
    setting("max_tokens", Kind::Count, "The most tokens that an answer may have."),
    setting("retry.enabled", Kind::Flag, "Whether anything is tried again at all.").default("true"),
    setting("retry.policy", Kind::Choice(&Policy::NAMES), "The retry policy; see `outlast policy list`.")
        .default("session")
        .variables(&[variable("OUTLAST_POLICY")])
        .flag("--policy"),
    setting(
        "retry.wait_for_reset",
        Kind::Flag,
        "Wait for a reset that the provider states, however far away it is.",
    )
    .default("false"),
    setting(
        "retry.max_retries",
        Kind::Count,
        "How many retries there may be, instead of the policy's own number.",
    ),
    setting(
        "retry.base_delay_ms",
        Kind::Count,
        "The first delay in milliseconds, instead of the policy's own.",
    ),
    setting(
        "retry.max_delay",
        Kind::Duration,
        "The longest delay, and the longest wait that a provider may ask for; 0 means no ceiling.",
    ),
    setting(
        "after_content",
        Kind::Choice(&AFTER_CONTENT),
        "What becomes of an answer that breaks off: it fails, it is asked for anew, or it is gone on with where it broke off.",
    )
    .default("retract")
    .flag("--after-content"),
    setting(
        "recovery.odd_answers",
        Kind::Flag,
        "Whether a model whose answer is none (empty, cut off in a call, only announced) is told so and asked again.",
    )
    .default("true"),
    setting(
        "fallback.models",
        Kind::Models,
        "The models that are asked when the one in use cannot be, in order: `MODEL`, or `PROVIDER:MODEL` for another provider.",
    )
    .flag("--fallback")
    .restricted(),
    setting("fallback.on", Kind::Choices(CONDITIONS), "What another model is asked for.")
        .default("overload, usage_limit, hard_error, refusal, overflow")
        .restricted(),
    setting(
        "fallback.overload_retries",
        Kind::IntegerRange(0, u32::MAX),
        "How many retries an overloaded model has before another one is asked.",
    )
    .default("2")
    .restricted(),
    setting(
        "fallback.usage_wait",
        Kind::Duration,
        "The longest wait for a plan's window that is preferred to another model.",
    )
    .default("5m")
    .restricted(),
    setting(
        "fallback.cooldown",
        Kind::Duration,
        "For how long a model is left when nobody says for how long it is out.",
    )
    .default("5m")
    .restricted(),
    setting(
        "compaction.enabled",
        Kind::Flag,
        "Whether a conversation that becomes too large is made smaller; `/compact` works without it.",
    )
    .default("true"),
    setting(
        "compaction.threshold",
        Kind::IntegerRange(1, 99),
        "The percentage of the model's window from which on it is done.",
    )
    .default("85"),
    setting(
        "compaction.keep",
        Kind::Count,
        "How many of the newest tokens stay as they are, about.",
    )
    .default("20000"),
    setting(
        "compaction.model",
        Kind::Model,
        "The model that summarises, `MODEL` or `PROVIDER:MODEL`; when it cannot, and without it, those that answer do.",
    )
    .restricted(),
    setting(
        "limits.deadline",
        Kind::Duration,
        "How long a prompt may take in all, waits and tools included; 0 means as long as it takes.",
    )
    .default("0s")
    .flag("--deadline")
    .restricted(),
    setting(
        "limits.sleep",
        Kind::Duration,
        "How long a prompt may wait in all, over all retries; 0 means what the policy allows.",
    )
    .default("0s")
    .restricted(),
    setting(
        "limits.cost",
        Kind::Amount,
        "What a prompt may cost in dollars; no further call is made beyond it. The model needs a price; 0 means no ceiling.",
    )
    .restricted(),
    setting("tools.enabled", Kind::Flag, "Whether the model may use tools at all.")
        .default("true")
        .restricted(),
    setting(
        "tools.allow",
        Kind::Text,
        "What may run without being asked about, separated by commas: write, bash, outside (files outside of the folder), mcp (the tools of all MCP servers), the name of a server or of one of its tools.",
    )
    .flag("--allow")
    .restricted(),
    setting("tools.timeout", Kind::Duration, "How long a tool may run.")
        .default("10m")
        .restricted(),
    setting(
        "mcp.<server>.command",
        Kind::Text,
        "The command that starts an MCP server, whose tools the model may use: a program and its arguments, with quotes as in a shell, but run without one.",
    )
    .restricted(),
    setting(
        "mcp.<server>.env.<variable>",
        Kind::Credential,
        "A variable of the environment that only this server sees.",
    )
    .secret()
    .restricted(),
    setting(
        "mcp.<server>.timeout",
        Kind::Duration,
        "How long a call of the server may take; without it as long as tools.timeout, which counts as well.",
    )
    .restricted(),
    setting(
        "mcp.<server>.effects",
        Kind::Text,
        "What running a tool of the server twice would do, such as `search=pure, save=idempotent`: those are run again when a restart interrupted them, all others are not.",
    )
    .restricted(),
    setting(
        "hooks.<number>.on",
        Kind::AtLeastOneOf(HOOK_EVENTS),
        "What a hook is run on. A hook is a command that reads a line of JSON about what happened.",
    )
    .restricted()
    .required(),
    setting(
        "hooks.<number>.command",
        Kind::Text,
        "The command, which a shell runs in the folder of the session. What it prints is not shown; what it says to stderr is, when it fails.",
    )
    .restricted()
    .required(),
    setting(
        "hooks.<number>.timeout",
        Kind::DurationUpTo(MAX_HOOK_SECONDS),
        "How long it may run, 10 seconds without it; then it is killed with all that it started.",
    )
    .restricted(),
    setting("timeouts.connect", Kind::Duration, "How long connecting may take.").default("10s"),
    setting("timeouts.headers", Kind::Duration, "How long the head of the response may take.").default("5m"),
    setting("timeouts.first_event", Kind::Duration, "How long the first event of the answer may take.")
        .default("5m"),
    setting("timeouts.idle", Kind::Duration, "How long the answer may pause.").default("5m"),
    setting("models.<model>.price.input", Kind::Amount, "What a million tokens that are read cost, in dollars.")
        .restricted(),
    setting("models.<model>.price.output", Kind::Amount, "What a million tokens that are written cost.")
        .restricted(),
    setting(
        "models.<model>.price.cache_read",
        Kind::Amount,
        "What a million tokens that are read from the cache cost; without it as much as those that are read.",
    )
    .restricted(),
    setting(
        "models.<model>.price.cache_write",
        Kind::Amount,
        "What a million tokens that are written to the cache cost; without it as much as those that are read.",
    )
    .restricted(),
    setting("models.<model>.timeouts.connect", Kind::Duration, "The same as timeouts.connect, for one model."),
    setting("models.<model>.timeouts.headers", Kind::Duration, "The same as timeouts.headers, for one model."),
    setting(
        "models.<model>.timeouts.first_event",
        Kind::Duration,
        "The same as timeouts.first_event, for one model.",
    ),
    setting("models.<model>.timeouts.idle", Kind::Duration, "The same as timeouts.idle, for one model."),
    setting(
        "models.<model>.context_window",
        Kind::Count,
        "How many tokens a request and its answer may have together, where the model is not known or known wrongly.",
    ),
    setting(
        "models.<model>.continue_by",
        Kind::Choice(CONTINUE_MODES),
        "How the model goes on with an answer that broke off: its stream is taken up, it goes on after its own words, it is asked in words, or it begins anew.",
    ),
    setting(
        "models.<model>.fallback",
        Kind::Models,
        "The models that are asked when this one cannot be, instead of fallback.models.",
    )
    .restricted(),
    setting("providers.<provider>.base_url", Kind::Url, "Where the provider's API is.")
        .variables(&[
            provider_variable("anthropic", "ANTHROPIC_BASE_URL"),
            provider_variable("openai", "OPENAI_BASE_URL"),
            provider_variable("openai-responses", "OPENAI_BASE_URL"),
        ])
        .restricted(),
    setting("providers.<provider>.api_key", Kind::Credential, "The key.")
        .variables(&[
            provider_variable("anthropic", "ANTHROPIC_API_KEY"),
            provider_variable("openai", "OPENAI_API_KEY"),
            provider_variable("openai-responses", "OPENAI_API_KEY"),
        ])
        .secret()
        .restricted(),
    setting(
        "providers.<provider>.api_key_env",
        Kind::VariableName,
        "The variable of the environment that holds the key, instead of the provider's usual one.",
    )
    .restricted(),
    setting("providers.<provider>.headers.<header>", Kind::Credential, "A header that every request carries.")
        .secret()
        .restricted(),
    setting("accounts.<account>.provider", Kind::Choice(REMOTE_PROVIDERS), "The provider that the account is with.")
        .restricted(),
    setting(
        "accounts.<account>.api_key_env",
        Kind::VariableName,
        "The variable of the environment that holds the account's key.",
    )
    .restricted(),
    setting("accounts.<account>.api_key_file", Kind::Path, "The file that holds the account's key.").restricted(),
    setting(
        "accounts.<account>.api_key_command",
        Kind::Text,
        "The command that prints the account's key; run again when the key was refused.",
    )
    .restricted(),
    setting(
        "accounts.<account>.max_in_flight",
        Kind::Count,
        "How many calls the account may have under way at once, over all processes.",
    )
    .restricted(),
    setting(
        "http.proxy",
        Kind::Proxy,
        "The proxy for every request. A later layer counts before an earlier one; within a layer http.proxy_http and http.proxy_https count before this.",
    )
    .variables(&[variable("all_proxy"), variable("ALL_PROXY")])
    .restricted(),
    setting("http.proxy_http", Kind::Proxy, "The proxy for requests to http:// addresses only.")
        .variables(&[variable("http_proxy"), variable("HTTP_PROXY")])
        .restricted(),
    setting("http.proxy_https", Kind::Proxy, "The proxy for requests to https:// addresses only.")
        .variables(&[variable("https_proxy"), variable("HTTPS_PROXY")])
        .restricted(),
    setting(
        "http.no_proxy",
        Kind::Text,
        "Hosts that are reached without a proxy, separated by commas; `*` means all.",
    )
    .variables(&[variable("no_proxy"), variable("NO_PROXY")])
    .restricted(),
    setting("http.ca_file", Kind::Path, "A file of further certificates to trust, in PEM.")
        .variables(&[variable("OUTLAST_CA_FILE")])
        .restricted(),
];

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;

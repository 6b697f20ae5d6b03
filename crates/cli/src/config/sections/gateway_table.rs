//! The rows of the table of settings for the gateway.
//!
//! Invariant: all of them are restricted. A gateway carries the keys of every agent on the machine, so no project says
//! where they go, who may use it or how much it takes.

use crate::config::table::{Kind, Setting, setting, variable};
use outlast_kernel::policy::Policy;

pub(in crate::config) const GATEWAY: &[Setting] = &[
    setting("gateway.listen", Kind::Address, "Address on which the gateway listens. A change takes effect at the next start.")
        .default("127.0.0.1:4180")
        .flag("--listen")
        .restricted(),
    setting(
        "gateway.upstream",
        Kind::Upstream,
        "Upstream of all requests, by default the provider of their dialect; `mock:SCRIPT` is the scripted provider. A later layer overrides an earlier one; within a layer, gateway.anthropic_upstream and gateway.openai_upstream override this.",
    )
    .flag("--upstream")
    .restricted(),
    setting(
        "gateway.anthropic_upstream",
        Kind::Upstream,
        "Upstream of requests in the Messages dialect [https://api.anthropic.com].",
    )
    .restricted(),
    setting(
        "gateway.openai_upstream",
        Kind::Upstream,
        "Upstream of requests in the dialects of OpenAI and of requests in no known dialect [https://api.openai.com/v1].",
    )
    .restricted(),
    setting(
        "gateway.policy",
        Kind::Choice(&Policy::NAMES),
        "Retry policy of requests; the header `x-outlast-policy` overrides it for one request.",
    )
    .default("gateway")
    .flag("--policy")
    .restricted(),
    setting(
        "gateway.policies",
        Kind::Routes,
        "Retry policies by path, such as \"/v1/embeddings=standard\"; the longest matching path applies.",
    )
    .restricted(),
    setting(
        "gateway.client",
        Kind::Text,
        "Client of all requests, such as \"codex\"; by default clients are recognised by their headers. The header `x-outlast-client` overrides it for one request.",
    )
    .flag("--client")
    .restricted(),
    setting(
        "gateway.allowed_hosts",
        Kind::Names,
        "Host names that requests may address, in addition to the listening address and localhost.",
    )
    .restricted(),
    setting(
        "gateway.origins",
        Kind::Names,
        "Origins of web pages that may send requests, such as \"https://app.example.com\"; none by default.",
    )
    .restricted(),
    setting(
        "gateway.client_keys",
        Kind::Credentials,
        "Keys with which clients may send requests if stored accounts are used. Required to listen beyond this machine.",
    )
    .variables(&[variable("OUTLAST_GATEWAY_KEYS")])
    .secret()
    .restricted(),
    setting(
        "gateway.use_accounts",
        Kind::Flag,
        "Sends requests to models with the stored accounts and keys, instead of the client's own key.",
    )
    .default("false")
    .restricted(),
    setting("gateway.max_body", Kind::Size, "Maximum size of a request body.")
        .default("64MiB")
        .restricted(),
    setting("gateway.max_connections", Kind::Count, "Maximum number of concurrent connections.")
        .default("20000")
        .restricted(),
    setting(
        "gateway.max_waiting",
        Kind::Count,
        "Maximum number of waiting requests; further ones are told to retry later.",
    )
    .default("10000")
    .restricted(),
    setting(
        "gateway.drain",
        Kind::Duration,
        "Time that requests in progress have to finish when the gateway shuts down.",
    )
    .default("30s")
    .restricted(),
    setting(
        "gateway.headers_timeout",
        Kind::Duration,
        "Maximum time until the response headers. A response that is not streamed is complete by then.",
    )
    .default("15m")
    .restricted(),
    setting(
        "gateway.first_event_timeout",
        Kind::Duration,
        "Maximum time until the first event of a streamed response; by default timeouts.first_event.",
    )
    .restricted(),
    setting(
        "gateway.idle_timeout",
        Kind::Duration,
        "Maximum pause within a streamed response; by default timeouts.idle.",
    )
    .restricted(),
    setting(
        "gateway.min_throughput",
        Kind::IntegerRange(0, u32::MAX),
        "Minimum throughput of a streamed response in bytes per second, over a minute; 0 means no minimum.",
    )
    .default("0")
    .restricted(),
    setting("gateway.otlp_endpoint", Kind::Url, "Endpoint to which traces are exported, in the OTLP protocol.").restricted(),
    setting(
        "gateway.otlp_headers",
        Kind::Credentials,
        "Headers of requests to the OTLP endpoint, such as \"x-key=abc\"; a space is written as %20.",
    )
    .secret()
    .restricted(),
    setting(
        "gateway.spool",
        Kind::Path,
        "Folder for the bodies of waiting requests, private to the user; by default one in OUTLAST_HOME. `none` keeps them in memory.",
    )
    .restricted(),
];

//! The rows of the table of settings for the gateway.
//!
//! Invariant: all of them are restricted. A gateway carries the keys of every agent on the machine, so no project says
//! where they go, who may use it or how much it takes.

use crate::config::table::{Kind, Setting, setting, variable};
use outlast_kernel::policy::Policy;

pub(in crate::config) const GATEWAY: &[Setting] = &[
    setting("gateway.listen", Kind::Address, "Where the gateway listens. It is not changed while it runs.")
        .default("127.0.0.1:4180")
        .flag("--listen")
        .restricted(),
    setting(
        "gateway.upstream",
        Kind::Upstream,
        "Where requests of every dialect go; `mock:SCRIPT` is the scripted provider. Without it, to the provider of their dialect. A later layer counts before an earlier one; within a layer gateway.anthropic_upstream and gateway.openai_upstream count before this.",
    )
    .flag("--upstream")
    .restricted(),
    setting(
        "gateway.anthropic_upstream",
        Kind::Upstream,
        "Where requests in the Messages dialect go [https://api.anthropic.com].",
    )
    .restricted(),
    setting(
        "gateway.openai_upstream",
        Kind::Upstream,
        "Where requests in the dialects of OpenAI, and all that are of no dialect, go [https://api.openai.com/v1].",
    )
    .restricted(),
    setting(
        "gateway.policy",
        Kind::Choice(&Policy::NAMES),
        "The retry policy of requests; the header `x-outlast-policy` says otherwise for one.",
    )
    .default("overnight")
    .flag("--policy")
    .restricted(),
    setting(
        "gateway.policies",
        Kind::Routes,
        "The policies of some paths, such as \"/v1/embeddings=standard\"; the longest path that fits counts.",
    )
    .restricted(),
    setting(
        "gateway.client",
        Kind::Text,
        "Who asks, for all requests, such as \"codex\"; without it clients are recognised by their headers. The header `x-outlast-client` says otherwise for one.",
    )
    .flag("--client")
    .restricted(),
    setting(
        "gateway.names",
        Kind::Names,
        "Host names by which the gateway may be asked, beside the one that it listens on and localhost.",
    )
    .restricted(),
    setting(
        "gateway.origins",
        Kind::Names,
        "Origins of web pages that may ask, such as \"https://app.example.com\"; without it none may.",
    )
    .restricted(),
    setting(
        "gateway.client_keys",
        Kind::Credentials,
        "The keys with which clients may ask where stored accounts are used. They are needed to listen beyond this machine.",
    )
    .variables(&[variable("OUTLAST_GATEWAY_KEYS")])
    .secret()
    .restricted(),
    setting(
        "gateway.use_accounts",
        Kind::Flag,
        "Whether stored accounts and keys are used for models' answers, in place of the client's own key.",
    )
    .default("false")
    .restricted(),
    setting("gateway.max_body", Kind::Size, "How large the body of a request may be.")
        .default("64MiB")
        .restricted(),
    setting("gateway.max_connections", Kind::Count, "How many connections there may be at once.")
        .default("20000")
        .restricted(),
    setting(
        "gateway.max_waiting",
        Kind::Count,
        "How many requests may wait at once; those beyond are told to come back.",
    )
    .default("10000")
    .restricted(),
    setting(
        "gateway.drain",
        Kind::Duration,
        "How long what is under way may take when the gateway is told to end.",
    )
    .default("30s")
    .restricted(),
    setting(
        "gateway.headers_timeout",
        Kind::Duration,
        "How long the head of a response may take. An answer that is not streamed comes as a whole, and its head with it.",
    )
    .default("15m")
    .restricted(),
    setting(
        "gateway.first_event_timeout",
        Kind::Duration,
        "How long the first event of a streamed answer may take; without it as long as timeouts.first_event.",
    )
    .restricted(),
    setting(
        "gateway.idle_timeout",
        Kind::Duration,
        "How long a streamed answer may pause; without it as long as timeouts.idle.",
    )
    .restricted(),
    setting(
        "gateway.min_throughput",
        Kind::IntegerRange(0, u32::MAX),
        "How many bytes a second a streamed answer must have, over a minute; 0 means any number.",
    )
    .default("0")
    .restricted(),
    setting("gateway.otlp_endpoint", Kind::Url, "Where traces go, in the OTLP protocol.").restricted(),
    setting(
        "gateway.otlp_headers",
        Kind::Credentials,
        "Headers for the one who takes the traces, such as \"x-key=abc\"; a blank is written as %20.",
    )
    .secret()
    .restricted(),
    setting(
        "gateway.spool",
        Kind::Path,
        "The folder for bodies of requests that wait, private to the user; without it one in Outlast's own folder. `none` keeps them in memory.",
    )
    .restricted(),
];

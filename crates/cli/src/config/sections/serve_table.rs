//! The rows of the table of settings for `outlast serve`.
//!
//! Invariant: all of them are restricted: no project says who may use the user's sessions.

use crate::config::table::{AFTER_CONTENT, Kind, Setting, setting};
use outlast_kernel::policy::Policy;

pub(in crate::config) const SERVE: &[Setting] = &[
    setting("serve.listen", Kind::Address, "Address on which `outlast serve` listens.")
        .default("127.0.0.1:4190")
        .flag("--listen")
        .restricted(),
    setting(
        "serve.policy",
        Kind::Choice(&Policy::NAMES),
        "Retry policy of the server's sessions, if retry.policy is not set.",
    )
    .default("overnight")
    .restricted(),
    setting(
        "serve.after_content",
        Kind::Choice(&AFTER_CONTENT),
        "Treatment of a response that breaks off in a session of the server, if after_content is not set.",
    )
    .default("fail")
    .restricted(),
    setting(
        "serve.require_token",
        Kind::Flag,
        "Requires the token on this machine, too. It is always required from other machines, and if serve.allowed_hosts or serve.origins is set.",
    )
    .default("false")
    .restricted(),
    setting(
        "serve.allowed_hosts",
        Kind::Names,
        "Host names that requests may address, in addition to addresses and localhost.",
    )
    .restricted(),
    setting(
        "serve.origins",
        Kind::Names,
        "Origins of other web pages that may send requests, such as \"https://app.example.com\"; none by default.",
    )
    .restricted(),
    setting("serve.max_body", Kind::Size, "Maximum size of a request body.")
        .default("32MiB")
        .restricted(),
    setting("serve.max_connections", Kind::Count, "Maximum number of concurrent connections.")
        .default("4096")
        .restricted(),
    setting(
        "serve.max_requests_per_second",
        Kind::Count,
        "Maximum number of requests per second from one address, averaged over five seconds.",
    )
    .default("1000")
    .restricted(),
];

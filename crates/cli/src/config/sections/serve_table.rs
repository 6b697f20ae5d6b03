//! The rows of the table of settings for `outlast serve`.
//!
//! Invariant: all of them are restricted: no project says who may use the user's sessions.

use crate::config::table::{AFTER_CONTENT, Kind, Setting, setting};
use outlast_kernel::policy::Policy;

pub(in crate::config) const SERVE: &[Setting] = &[
    setting("serve.listen", Kind::Address, "Where `outlast serve` listens.")
        .default("127.0.0.1:4190")
        .flag("--listen")
        .restricted(),
    setting(
        "serve.policy",
        Kind::Choice(&Policy::NAMES),
        "The retry policy of sessions there, where retry.policy is not set.",
    )
    .default("overnight")
    .restricted(),
    setting(
        "serve.after_content",
        Kind::Choice(&AFTER_CONTENT),
        "What becomes of an answer that breaks off in a session there, where after_content is not set.",
    )
    .default("fail")
    .restricted(),
    setting(
        "serve.require_token",
        Kind::Flag,
        "Whether the token is asked for on this machine, too. Beyond it, and where serve.names or serve.origins are set, it always is.",
    )
    .default("false")
    .restricted(),
    setting(
        "serve.names",
        Kind::Names,
        "Host names by which it may be asked, beside addresses and localhost.",
    )
    .restricted(),
    setting(
        "serve.origins",
        Kind::Names,
        "Origins of web pages elsewhere that may ask, such as \"https://app.example.com\"; without it none may.",
    )
    .restricted(),
    setting("serve.max_body", Kind::Size, "How large the body of a request may be.")
        .default("32MiB")
        .restricted(),
    setting("serve.max_connections", Kind::Count, "How many connections there may be at once.")
        .default("4096")
        .restricted(),
    setting(
        "serve.max_requests",
        Kind::Count,
        "How many requests one address may make in a second, over five seconds.",
    )
    .default("1000")
    .restricted(),
];

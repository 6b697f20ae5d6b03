//! Recognition: finds the row of the table for a request.
//!
//! Invariant: the first row whose signs are present wins, so more specific rows come first in the table.

use super::profile::{HeaderSign, Profile};
use super::table;
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue};

/// Returns the client that sent these headers, or the named one, if it exists.
pub fn recognise(headers: &HeaderMap, forced: Option<&str>) -> &'static Profile {
    if let Some(profile) = forced.and_then(by_name) {
        return profile;
    }
    let seen = ClientHeaders::from_headers(headers);
    table::ALL
        .iter()
        .find(|profile| matches_signature(profile, &seen))
        .unwrap_or(&table::UNKNOWN)
}

/// Returns the row of that name; upper and lower case are the same.
pub fn by_name(name: &str) -> Option<&'static Profile> {
    let name = name.trim();
    table::ALL
        .iter()
        .chain([&table::UNKNOWN])
        .find(|profile| profile.name.eq_ignore_ascii_case(name))
}

/// The headers that signs refer to, looked up once for all rows.
struct ClientHeaders<'a> {
    user_agent: &'a str,
    others: [(&'static str, Option<&'a str>); table::SIGNATURE_HEADER_COUNT],
}

impl<'a> ClientHeaders<'a> {
    fn from_headers(headers: &'a HeaderMap) -> Self {
        let text = |value: &'a HeaderValue| value.to_str().unwrap_or_default();
        Self {
            user_agent: headers.get(USER_AGENT).map_or("", text),
            others: table::SIGNATURE_HEADERS
                .map(|(name, header)| (name, headers.get(header).map(text))),
        }
    }

    fn value(&self, name: &str) -> Option<&'a str> {
        let mut others = self.others.iter();
        others.find(|(other, _)| *other == name)?.1
    }
}

fn matches_signature(profile: &Profile, seen: &ClientHeaders<'_>) -> bool {
    profile
        .signatures
        .iter()
        .any(|signs| signs.iter().all(|sign| matches_sign(*sign, seen)))
}

fn matches_sign(sign: HeaderSign, seen: &ClientHeaders<'_>) -> bool {
    match sign {
        HeaderSign::UserAgentPrefix(text) => seen.user_agent.starts_with(text),
        HeaderSign::UserAgentContains(text) => seen.user_agent.contains(text),
        HeaderSign::HeaderEquals(name, wanted) => seen
            .value(name)
            .is_some_and(|value| value.eq_ignore_ascii_case(wanted)),
        HeaderSign::HeaderPresent(name) => seen.value(name).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    #[test]
    fn clients_are_known_by_their_user_agents() {
        for (agent, name) in [
            ("claude-cli/2.1.325 (external, cli)", "claude-code"),
            ("claude-cli/2.1.325 (external, sdk-ts)", "claude-code"),
            (
                "codex_exec/0.166.0 (Debian 12.0.0; x86_64) xterm (codex_exec; 0.166.0)",
                "codex",
            ),
            ("codex_cli_rs/0.166.0 (Mac OS 15.5.0; arm64) iTerm", "codex"),
            (
                "opencode/1.18.33 ai-sdk/provider-utils/4.0.23 runtime/bun/1.3.14",
                "opencode",
            ),
            (
                "GeminiCLI/0.34.0/gemini-2.5-pro (linux; x64; terminal)",
                "gemini-cli",
            ),
            (
                "GeminiCLI/0.1.0 Node.js/v22.14.0 (darwin; arm64)",
                "gemini-cli",
            ),
            (
                "google-genai-sdk/1.30.0 gl-node/v22.14.0",
                "google-genai-js",
            ),
            ("google-genai-sdk/1.30.0 gl-python/3.12.3", "unknown"),
            (
                "ai/5.0.52 ai-sdk/provider-utils/3.0.9 runtime/node.js/22",
                "ai-sdk",
            ),
            (
                "ai-sdk-provider-utils/4.0.15 runtime-bun/1.3.9",
                "ai-sdk-bun",
            ),
            (
                "ai-sdk/anthropic/2.0.17 ai-sdk/provider-utils/3.0.9 runtime/bun/1.3.9",
                "ai-sdk-bun",
            ),
            ("litellm/1.106.2", "aider"),
            ("Anthropic/Python 2.8.0", "anthropic-sdk-python"),
            ("AsyncAnthropic/Python 2.8.0", "anthropic-sdk-python"),
            ("Anthropic/JS 0.91.1", "anthropic-sdk-ts"),
            ("OpenAI/Python 3.49.0", "openai-sdk-python"),
            ("AsyncOpenAI/Python 3.49.0", "openai-sdk-python"),
            ("OpenAI/JS 6.26.0", "openai-sdk-node"),
            ("OpenAI/Go 3.40.0", "unknown"),
            ("python-requests/2.32.3", "unknown"),
            ("curl/8.5.0", "unknown"),
            ("", "unknown"),
        ] {
            let found = recognise(&headers(&[("user-agent", agent)]), None);
            assert_eq!(found.name, name, "{agent}");
        }
    }

    #[test]
    fn sdk_headers_identify_client_with_unknown_agent() {
        let own_name = ("user-agent", "my-app/1.0");
        let version = ("anthropic-version", "2023-06-01");
        let python = ("x-stainless-lang", "python");
        let js = ("x-stainless-lang", "js");
        let bun = ("x-stainless-runtime", "bun");
        for (pairs, name) in [
            (&[own_name, python][..], "openai-sdk-python"),
            (&[own_name, python, version], "anthropic-sdk-python"),
            (&[own_name, js], "openai-sdk-node"),
            (&[own_name, js, version], "anthropic-sdk-ts"),
            (&[own_name, js, version, bun], "anthropic-sdk-bun"),
            (
                &[("user-agent", "OpenAI/JS 6.26.0"), js, bun],
                "openai-sdk-bun",
            ),
            (&[own_name, ("x-stainless-lang", "go")], "unknown"),
            (&[("goose-session-id", "20261115_1")], "goose"),
            (&[("originator", "pi"), js], "pi"),
            (&[own_name, version], "unknown"),
            (&[], "unknown"),
        ] {
            assert_eq!(recognise(&headers(pairs), None).name, name, "{pairs:?}");
        }
        // A program that wraps an SDK is recognised as itself, not as the SDK.
        let claude = headers(&[
            ("user-agent", "claude-cli/2.1.325 (external, cli)"),
            js,
            bun,
        ]);
        assert_eq!(recognise(&claude, None).name, "claude-code");
    }

    #[test]
    fn forced_client_name_overrides_recognition() {
        let claude = headers(&[("user-agent", "claude-cli/2.1.325 (external, cli)")]);
        for (forced, name) in [
            ("codex", "codex"),
            (" Codex ", "codex"),
            ("unknown", "unknown"),
            ("claude-code-endless", "claude-code-endless"),
            ("no-such-client", "claude-code"),
        ] {
            assert_eq!(recognise(&claude, Some(forced)).name, name, "{forced}");
        }
    }

    #[test]
    fn non_text_user_agent_is_unknown_client() {
        let mut strange = HeaderMap::new();
        strange.insert(
            "user-agent",
            HeaderValue::from_bytes(b"claude-cli/\xff").unwrap(),
        );
        assert_eq!(recognise(&strange, None).name, "unknown");
    }

    #[test]
    fn signature_headers_cover_every_profile() {
        let rows = table::ALL.iter().flat_map(|profile| profile.signatures);
        for sign in rows.copied().flatten() {
            if let HeaderSign::HeaderEquals(name, _) | HeaderSign::HeaderPresent(name) = sign {
                let mut known = table::SIGNATURE_HEADERS.into_iter();
                assert!(known.any(|(other, _)| other == *name), "{name}");
            }
        }
    }

    #[test]
    fn profile_names_are_unique_and_resolvable() {
        let mut names: Vec<_> = table::ALL.iter().map(|profile| profile.name).collect();
        for name in &names {
            assert_eq!(by_name(name).map(|profile| profile.name), Some(*name));
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), table::ALL.len());
    }
}

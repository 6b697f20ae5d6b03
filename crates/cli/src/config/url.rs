//! The two kinds of addresses in settings: of an API, and of a proxy.
//!
//! Invariant: no error here repeats an address, and a shown address has no user and no password.

use url::Url;

/// Checks the address of an API.
pub(crate) fn check_base(text: &str) -> Result<(), &'static str> {
    let url = parse(text)?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err("it does not begin with http:// or https://");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it holds a user or a password; use `headers` or `api_key`");
    }
    match text.contains(['#', '@']) {
        true => Err("it holds more than a host, a path and a query"),
        false => Ok(()),
    }
}

fn parse(text: &str) -> Result<Url, &'static str> {
    let is_whole =
        text.contains("://") && !text.contains(|c: char| c.is_whitespace() || c.is_control());
    let url = Url::parse(text).ok().filter(|_| is_whole);
    let url = url.filter(|url| url.has_host() && url.port() != Some(0));
    url.ok_or("it is not an address")
}

/// The prefix of an upstream that is the scripted provider.
pub(crate) const SCRIPTED_PREFIX: &str = "mock:";

/// Checks an upstream: the address of an API, or a script.
pub(crate) fn check_upstream(text: &str) -> Result<(), String> {
    match text.strip_prefix(SCRIPTED_PREFIX) {
        Some(script) => match script.parse::<outlast_mock::Script>() {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        },
        None => check_base(text).map_err(str::to_owned),
    }
}

/// Returns the host and port of an address, in lower case.
pub(crate) fn host_and_port(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    host.to_ascii_lowercase()
}

/// Returns the address of a proxy with its scheme; the default scheme is `http`, as everywhere.
pub(crate) fn complete_proxy(url: &str) -> Result<String, &'static str> {
    let url = if url.contains("://") {
        url.to_owned()
    } else {
        format!("http://{url}")
    };
    let parsed = parse(&url)?;
    let schemes = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"];
    if !schemes.contains(&parsed.scheme()) {
        return Err("it does not begin with http://, https:// or socks5://");
    }
    if !["", "/"].contains(&parsed.path()) || url.contains(['?', '#']) {
        return Err(
            "it holds more than a host and a port; in a password, `/` is %2F and `@` is %40",
        );
    }
    Ok(url)
}

/// Returns the text; the part of an address after `?` is left out, because it may be a key.
pub(crate) fn without_query(text: &str) -> String {
    match text.split_once('?') {
        Some((address, _)) if address.starts_with("http") => format!("{address}?…"),
        _ => text.to_owned(),
    }
}

/// Returns the address without user and password.
pub(crate) fn without_credentials(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://…@{host}"),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_url_check_accepts_only_plain_http_urls() {
        let good = [
            "https://api.anthropic.com",
            "http://localhost:11434/v1",
            "http://[::1]:8080/",
            "https://bücher.example/v1/",
        ];
        for url in good {
            assert_eq!(check_base(url), Ok(()), "{url}");
        }
        let bad = [
            "",
            "localhost",
            "localhost:80",
            "ftp://host",
            "https://",
            "https://host:0",
            "https://host:99999",
            "https://host:port",
            "https://a b",
            "https://user:pw@host",
            "https://host/#x",
            "https://[::1",
            "https://[::1]x",
            "https://user:pw/x@host",
            "https://host\n",
        ];
        for url in bad {
            assert!(check_base(url).is_err(), "{url}");
        }
    }

    #[test]
    fn proxy_url_may_omit_scheme_and_carry_password() {
        let table = [
            ("proxy:3128", Some("http://proxy:3128")),
            ("http://proxy", Some("http://proxy")),
            ("https://u:p@proxy:1/", Some("https://u:p@proxy:1/")),
            ("socks5h://127.0.0.1:1080", Some("socks5h://127.0.0.1:1080")),
            ("u:p@proxy:3128", Some("http://u:p@proxy:3128")),
            ("", None),
            ("gopher://proxy", None),
            ("http://user:pa/ss@proxy", None),
            ("http://user:12/ss@proxy", None),
            ("http://proxy/path", None),
        ];
        for (url, whole) in table {
            assert_eq!(complete_proxy(url).ok().as_deref(), whole, "{url}");
        }
    }

    #[test]
    fn url_credentials_are_redacted() {
        assert_eq!(
            without_credentials("http://proxy:3128"),
            "http://proxy:3128"
        );
        assert_eq!(
            without_credentials("http://user:pass@proxy:3128"),
            "http://…@proxy:3128"
        );
        assert_eq!(
            without_credentials("http://user:p@ss@proxy"),
            "http://…@proxy"
        );
    }
}

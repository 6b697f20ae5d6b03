//! Tests of access control.

use super::*;
use http::header::{AUTHORIZATION, HeaderName};
use secrecy::SecretString;
use std::fs;

fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |&(name, value): &(&'static str, &str)| {
        let value = HeaderValue::from_str(value).unwrap();
        (HeaderName::from_static(name), value)
    };
    all.iter().map(pair).collect()
}

fn names() -> AllowedNames {
    AllowedNames::new(
        "gateway",
        ["agents.example".to_owned()],
        ["https://page.example".to_owned()],
    )
}

fn check_at(uri: &str, all: &[(&'static str, &str)]) -> Result<(), &'static str> {
    let checked = check(&headers(all), &uri.parse().unwrap(), &names());
    checked.map_err(|refused| Problem::from(refused).code)
}

#[test]
fn ip_localhost_and_configured_hosts_are_accepted() {
    let ours = [
        "127.0.0.1",
        "127.0.0.1:8080",
        "192.168.1.7:80",
        "[::1]",
        "[::1]:8080",
        "localhost:1",
        "LocalHost",
        "agents.example",
        "Agents.Example:443",
    ];
    for host in ours {
        assert_eq!(
            check_at("/v1/messages", &[("host", host)]),
            Ok(()),
            "{host}"
        );
    }
}

#[test]
fn unknown_or_ambiguous_host_is_refused() {
    let strange = [
        "evil.example",
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "localhost.",
        "127.1",
        "0x7f000001",
        "::1",
        "[::1",
        "[::1]x",
        "[fe80::1%25eth0]",
        "user@localhost",
        "localhost/",
        "127.0.0.1 ",
    ];
    for host in strange {
        // A header of a real request has lost the blanks around it; one within is no name either.
        let checked = check_at("/", &[("host", host)]);
        assert!(checked.is_err(), "{host}");
    }
    assert_eq!(
        check_at("/", &[("host", "evil.example")]),
        Err("unknown_host")
    );
}

#[test]
fn missing_repeated_or_invalid_host_is_refused() {
    for all in [
        &[][..],
        &[("host", "")],
        &[("host", ":80")],
        &[("host", "localhost:")],
        &[("host", "localhost:99999")],
        &[("host", "localhost"), ("host", "127.0.0.1")],
    ] {
        assert_eq!(check_at("/", all), Err("no_host"), "{all:?}");
    }
    let mut binary = HeaderMap::new();
    binary.insert("host", HeaderValue::from_bytes(b"local\xffhost").unwrap());
    let checked = check(&binary, &Uri::from_static("/"), &names());
    assert_eq!(checked, Err(AccessDenied::NoHost));
}

#[test]
fn target_authority_is_checked_like_host_header() {
    let at = |uri: &str, host: &str| check_at(uri, &[("host", host)]);
    assert_eq!(at("http://localhost:8080/v1", "localhost:8080"), Ok(()));
    assert_eq!(at("http://LOCALHOST:8080/v1", "localhost:8080"), Ok(()));
    assert_eq!(
        at("http://evil.example/v1", "localhost"),
        Err("unknown_host")
    );
    assert_eq!(
        at("http://localhost/v1", "evil.example"),
        Err("unknown_host")
    );
    assert_eq!(at("http://127.0.0.1/v1", "localhost"), Err("no_host"));
    assert_eq!(check_at("http://localhost/v1", &[]), Err("no_host"));
}

#[test]
fn only_own_and_configured_origins_are_accepted() {
    let from = |host: &str, origin: &str| check_at("/", &[("host", host), ("origin", origin)]);
    for (host, origin) in [
        ("localhost:8080", "http://localhost:8080"),
        ("LOCALHOST:8080", "http://localhost:8080"),
        ("[::1]:8080", "http://[::1]:8080"),
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("agents.example", "https://agents.example"),
        ("localhost:8080", "https://page.example"),
    ] {
        assert_eq!(from(host, origin), Ok(()), "{host} {origin}");
    }
    for (host, origin) in [
        ("localhost:8080", "http://localhost:3000"),
        ("localhost:8080", "http://127.0.0.1:8080"),
        ("localhost:8080", "http://evil.example"),
        ("localhost:8080", "http://localhost:8080.evil.example"),
        ("localhost:8080", "http://localhost:8080/"),
        ("localhost:8080", "chrome-extension://localhost:8080"),
        ("localhost:8080", "http://page.example"),
        ("localhost:8080", "null"),
        ("localhost:8080", ""),
        ("agents.example", "https://agents.example:80"),
    ] {
        assert_eq!(from(host, origin), Err("unknown_origin"), "{host} {origin}");
    }
    let both = [
        ("host", "localhost"),
        ("origin", "http://localhost"),
        ("origin", "http://evil.example"),
    ];
    assert_eq!(check_at("/", &both), Err("unknown_origin"));
}

#[test]
fn cross_site_fetch_without_origin_is_refused() {
    let site = |site: &str| check_at("/", &[("host", "localhost"), ("sec-fetch-site", site)]);
    assert_eq!(site("cross-site"), Err("cross_site"));
    assert_eq!(site("same-site"), Err("cross_site"));
    assert_eq!(site("same-origin"), Ok(()));
    assert_eq!(site("none"), Ok(()));
    let configured = [
        ("host", "localhost"),
        ("origin", "https://page.example"),
        ("sec-fetch-site", "cross-site"),
    ];
    assert_eq!(check_at("/", &configured), Ok(()));
}

#[test]
fn only_top_level_document_load_is_navigation() {
    let goes = |mode: &str, dest: &str| {
        is_navigation(&headers(&[
            ("sec-fetch-mode", mode),
            ("sec-fetch-dest", dest),
        ]))
    };
    assert!(goes("navigate", "document"));
    assert!(!goes("navigate", "iframe"));
    assert!(!goes("no-cors", "document"));
    assert!(!goes("cors", "empty"));
    assert!(!is_navigation(&HeaderMap::new()));
}

#[test]
fn refusal_body_is_json_and_bounds_echoed_host() {
    let host = format!("evil\u{9b}31m{}", "x".repeat(5000));
    let mut all = HeaderMap::new();
    all.insert("host", HeaderValue::from_bytes(host.as_bytes()).unwrap());
    let binary = check(&all, &Uri::from_static("/"), &names()).unwrap_err();
    assert_eq!(binary, AccessDenied::NoHost);
    all.insert("host", HeaderValue::from_str(&"x".repeat(5000)).unwrap());
    let long = check(&all, &Uri::from_static("/"), &names()).unwrap_err();
    let told = Problem::from(long);
    assert_eq!(told.status, 403);
    let body: serde_json::Value =
        serde_json::from_str(&error_body(told.code, &told.detail)).unwrap();
    assert_eq!(body["error"]["type"], "unknown_host");
    assert!(body["error"]["message"].as_str().unwrap().len() < 300);
}

#[test]
fn exposure_follows_listen_address() {
    for (address, reach) in [
        ("127.0.0.1", Exposure::Loopback),
        ("127.8.8.8", Exposure::Loopback),
        ("::1", Exposure::Loopback),
        ("::ffff:127.0.0.1", Exposure::Loopback),
        ("0.0.0.0", Exposure::Network),
        ("::", Exposure::Network),
        ("192.168.1.7", Exposure::Network),
    ] {
        assert_eq!(
            Exposure::for_address(address.parse().unwrap()),
            reach,
            "{address}"
        );
    }
}

// --- secrets ---

fn bearer(key: &str) -> HeaderMap {
    headers(&[("authorization", &format!("bearer  {key}"))])
}

#[test]
fn token_is_created_once_with_private_mode() {
    let home = tempfile::tempdir().unwrap();
    assert!(Token::load_existing(home.path()).unwrap().is_none());
    let first = Token::load_or_create_in(home.path()).unwrap();
    let second = Token::load_or_create_in(home.path()).unwrap();
    let left = Token::load_existing(home.path()).unwrap().unwrap();
    assert_eq!(first.reveal().len(), 64);
    assert_eq!(first.reveal(), second.reveal());
    assert_eq!(first.reveal(), left.reveal());
    let files: Vec<_> = fs::read_dir(home.path()).unwrap().collect();
    assert_eq!(files.len(), 1, "no draft is left: {files:?}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let found = fs::metadata(home.path().join("gateway.token")).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Token::load_or_create_in(elsewhere.path()).unwrap();
    assert_ne!(first.reveal(), other.reveal());
    assert!(!format!("{first:?}").contains(first.reveal()));
}

#[test]
fn invalid_token_file_is_replaced() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("gateway.token");
    for broken in ["", "abc", &"g".repeat(64)] {
        fs::write(&file, broken).unwrap();
        make_private(&file);
        assert_eq!(
            Token::load_or_create_in(home.path())
                .unwrap()
                .reveal()
                .len(),
            64
        );
    }
}

#[cfg(unix)]
#[test]
fn token_readable_by_others_is_replaced() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("gateway.token");
    let known = Token::load_or_create_in(home.path()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(Token::load_existing(home.path()).unwrap().is_none());
    let fresh = Token::load_or_create_in(home.path()).unwrap();
    assert_ne!(known.reveal(), fresh.reveal());
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

fn make_private(file: &std::path::Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    assert!(file.exists());
}

#[test]
fn concurrent_callers_get_same_token() {
    let home = tempfile::tempdir().unwrap();
    let tokens: Vec<String> = std::thread::scope(|scope| {
        let make = || {
            Token::load_or_create_in(home.path())
                .unwrap()
                .reveal()
                .to_owned()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
}

#[test]
fn missing_folder_error_names_token_file() {
    let home = tempfile::tempdir().unwrap();
    let error = Token::load_or_create_in(&home.path().join("nowhere")).unwrap_err();
    assert!(error.to_string().contains("gateway.token"), "{error}");
}

#[test]
fn token_is_accepted_from_bearer_or_own_header_only() {
    let home = tempfile::tempdir().unwrap();
    let token = Token::load_or_create_in(home.path()).unwrap();
    let key = token.reveal();
    assert!(token.is_in_headers(&bearer(key)));
    assert!(token.is_in_headers(&headers(&[("x-outlast-token", key)])));
    let mut both = bearer("sk-of-the-provider");
    both.append(
        AUTHORIZATION,
        HeaderValue::from_str(&format!("Bearer {key}")).unwrap(),
    );
    assert!(token.is_in_headers(&both));
    for wrong in [
        HeaderMap::new(),
        bearer(""),
        bearer(&key[1..]),
        bearer(&format!("{key}0")),
        bearer(&key.to_uppercase().replace(char::is_numeric, "0")),
        headers(&[("authorization", key)]),
        headers(&[("authorization", &format!("Basic {key}"))]),
        headers(&[("x-api-key", key)]),
    ] {
        assert!(!token.is_in_headers(&wrong), "{wrong:?}");
    }
}

#[test]
fn token_is_client_key_unless_keys_are_configured() {
    let home = tempfile::tempdir().unwrap();
    let token = Token::load_or_create_in(home.path()).unwrap();
    let key = |key: &str| SecretString::from(key.to_owned());
    let fallback = ClientKeys::new(vec![key("")], &token);
    assert_eq!(
        fallback.check(&headers(&[("x-api-key", token.reveal())])),
        Ok(())
    );
    assert!(fallback.check(&headers(&[("x-api-key", "")])).is_err());
    let keys = ClientKeys::new(vec![key("one"), key("two")], &token);
    assert_eq!(keys.check(&bearer("one")), Ok(()));
    assert_eq!(keys.check(&headers(&[("x-api-key", "two")])), Ok(()));
    let refused = Problem::from(keys.check(&bearer(token.reveal())).unwrap_err());
    assert_eq!(
        (refused.status.as_u16(), refused.code),
        (401, "client_key_required")
    );
    assert!(keys.check(&HeaderMap::new()).is_err());
}

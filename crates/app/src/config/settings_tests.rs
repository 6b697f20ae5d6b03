//! What the layers amount to.

use super::file::{self, Entries};
use super::layers::{Layers, Trust};
use super::settings::{Provider, Settings};
use secrecy::ExposeSecret;
use std::path::Path;
use std::time::Duration;

struct Given<'a> {
    user: &'a str,
    project: &'a str,
    trust: Trust,
    environment: &'a [(&'a str, &'a str)],
    flags: &'a [(&'a str, &'a str)],
}

impl Default for Given<'_> {
    fn default() -> Self {
        Self {
            user: "",
            project: "",
            trust: Trust::Trusted,
            environment: &[],
            flags: &[],
        }
    }
}

fn entries(text: &str) -> Entries {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("outlast.toml");
    std::fs::write(&file, text).unwrap();
    file::read(&file).unwrap()
}

fn settings(given: Given<'_>) -> Settings {
    let mut layers = Layers::defaults();
    layers.user(Path::new("/home/outlast.toml"), entries(given.user));
    layers.project(
        Path::new("/project/outlast.toml"),
        entries(given.project),
        given.trust,
    );
    layers.environment(&|name| {
        let variable = given.environment.iter().find(|(its, _)| *its == name);
        variable.map(|(_, value)| (*value).into())
    });
    for (path, text) in given.flags {
        layers.flag(path, text);
    }
    assert!(layers.problems.is_empty(), "{:?}", layers.problems);
    Settings::of(&layers).unwrap()
}

#[test]
fn nothing_set_means_the_defaults() {
    let settings = settings(Given::default());
    assert_eq!(
        (settings.provider, settings.model, settings.max_tokens),
        (None, None, None)
    );
    assert!(settings.retry.enabled && !settings.retry.policy.wait_for_reset);
    assert_eq!(settings.retry.policy.name, "session");
    let timeouts = settings.timeouts;
    let five_minutes = Duration::from_secs(300);
    assert_eq!(timeouts.connect, Duration::from_secs(10));
    assert_eq!(
        [timeouts.headers, timeouts.first_event, timeouts.idle],
        [five_minutes; 3]
    );
    assert!(settings.api_key.is_none() && settings.proxy.https.is_none());
}

#[test]
fn a_later_layer_counts() {
    let mut given = Given {
        user: "model = \"user\"\nmax_tokens = 1\n[retry]\npolicy = \"patient\"\nwait_for_reset = true",
        ..Given::default()
    };
    let model = |given: &Given<'_>| settings(Given { ..*given }).model.unwrap();
    assert_eq!(model(&given), "user");
    given.project = "model = \"project\"";
    assert_eq!(model(&given), "project");
    given.environment = &[("OUTLAST_MODEL", "environment"), ("OUTLAST_POLICY", "")];
    assert_eq!(model(&given), "environment");
    given.flags = &[("model", "flag"), ("provider", "openai-responses")];
    assert_eq!(model(&given), "flag");
    let settings = settings(given);
    assert_eq!(
        (settings.max_tokens, settings.provider),
        (Some(1), Some(Provider::OpenAiResponses))
    );
    assert_eq!(settings.retry.policy.name, "patient");
    assert!(settings.retry.policy.wait_for_reset);
}

#[test]
fn a_model_has_timeouts_of_its_own_and_zero_is_none() {
    let user = "model = \"llama3.1:8b\"\n[timeouts]\nidle = 0\nconnect = \"1s\"\n[models.\"llama3.1:8b\".timeouts]\nfirst_event = \"1h\"";
    let timeouts = settings(Given {
        user,
        ..Given::default()
    })
    .timeouts;
    assert_eq!(timeouts.first_event, Duration::from_secs(3600));
    assert_eq!(
        (timeouts.connect, timeouts.idle),
        (Duration::from_secs(1), Duration::ZERO)
    );
    let flags: &[_] = &[("model", "another")];
    let timeouts = settings(Given {
        user,
        flags,
        ..Given::default()
    })
    .timeouts;
    assert_eq!(timeouts.first_event, Duration::from_secs(300));
}

#[test]
fn an_untrusted_project_cannot_redirect_keys() {
    let given = |trust| Given {
        user: "provider = \"anthropic\"",
        project: "model = \"m\"\n[providers.anthropic]\nbase_url = \"https://evil.example\"\napi_key_env = \"OTHER\"\n[http]\nproxy = \"evil:1\"",
        trust,
        environment: &[("ANTHROPIC_API_KEY", "usual"), ("OTHER", "other")],
        ..Given::default()
    };
    let key = |settings: &Settings| {
        settings
            .api_key
            .as_ref()
            .unwrap()
            .expose_secret()
            .to_owned()
    };
    let before = settings(given(Trust::Untrusted));
    assert_eq!(
        (before.model.as_deref(), before.base_url.as_deref()),
        (Some("m"), None)
    );
    assert!(before.proxy.https.is_none());
    assert_eq!(
        (key(&before).as_str(), before.api_key_variable.as_deref()),
        ("usual", Some("ANTHROPIC_API_KEY"))
    );
    let after = settings(given(Trust::Trusted));
    assert_eq!(after.base_url.as_deref(), Some("https://evil.example"));
    assert_eq!(after.proxy.https.unwrap().expose(), "http://evil:1");
    assert_eq!(after.api_key.unwrap().expose_secret(), "other");
}

#[test]
fn a_named_variable_is_the_only_one_that_is_asked() {
    let given = Given {
        user: "provider = \"openai\"\n[providers.openai]\napi_key_env = \"WORK_KEY\"\nheaders = { X-Team = \"a\", x-app = \"b\" }",
        environment: &[
            ("OPENAI_API_KEY", "usual"),
            ("OPENAI_BASE_URL", "http://localhost:1/v1"),
        ],
        ..Given::default()
    };
    let settings = settings(given);
    assert!(settings.api_key.is_none());
    assert_eq!(settings.api_key_variable.as_deref(), Some("WORK_KEY"));
    assert_eq!(settings.base_url.as_deref(), Some("http://localhost:1/v1"));
    let headers: Vec<_> = settings
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.expose_secret()))
        .collect();
    assert_eq!(headers, [("x-app", "b"), ("x-team", "a")]);
}

#[test]
fn proxies_are_found_as_everywhere() {
    let of = |user, environment| {
        let proxy = settings(Given {
            user,
            environment,
            ..Given::default()
        })
        .proxy;
        let text = |url: Option<super::value::ProxyUrl>| {
            url.map_or("-".to_owned(), |url| url.expose().to_owned())
        };
        format!(
            "{} {} {}",
            text(proxy.http),
            text(proxy.https),
            proxy.no_proxy.unwrap_or_default()
        )
    };
    type Table<'a> = [(&'a str, &'a [(&'a str, &'a str)], &'a str); 6];
    let table: Table<'_> = [
        (
            "",
            &[("HTTPS_PROXY", "a:1"), ("NO_PROXY", "localhost,.corp")],
            "- http://a:1 localhost,.corp",
        ),
        (
            "",
            &[("ALL_PROXY", "a:1"), ("http_proxy", "b:2")],
            "http://b:2 http://a:1 ",
        ),
        (
            "",
            &[("HTTPS_PROXY", "a:1"), ("https_proxy", "b:2")],
            "- http://b:2 ",
        ),
        (
            "",
            &[("https_proxy", ""), ("HTTPS_PROXY", "a:1")],
            "- http://a:1 ",
        ),
        (
            "http.proxy = \"f:1\"",
            &[("HTTPS_PROXY", "a:1")],
            "http://f:1 http://a:1 ",
        ),
        (
            "http.proxy_https = \"f:1\"",
            &[("ALL_PROXY", "a:1")],
            "http://a:1 http://a:1 ",
        ),
    ];
    for (user, environment, expected) in table {
        assert_eq!(of(user, environment), expected, "{user} {environment:?}");
    }
}

#[test]
fn a_path_is_meant_from_the_folder_of_its_file() {
    let file = |user, environment| {
        settings(Given {
            user,
            environment,
            ..Given::default()
        })
        .ca_file
        .unwrap()
    };
    assert_eq!(
        file("http.ca_file = \"ca.pem\"", &[]),
        Path::new("/home/ca.pem")
    );
    assert_eq!(
        file("http.ca_file = \"/etc/ca.pem\"", &[]),
        Path::new("/etc/ca.pem")
    );
    assert_eq!(
        file("", &[("OUTLAST_CA_FILE", "ca.pem")]),
        Path::new("ca.pem")
    );
}

#[test]
fn no_debug_output_of_the_settings_holds_a_secret() {
    let given = Given {
        user: "provider = \"openai\"\n[providers.openai]\napi_key = \"sesame\"\nheaders = { x = \"sesame\" }\n[http]\nproxy = \"http://u:sesame@p\"",
        ..Given::default()
    };
    assert!(!format!("{:?}", settings(given)).contains("sesame"));
}

#[test]
fn a_server_is_read_with_its_own_variables_and_can_be_allowed() {
    let user = "[mcp.files]\ncommand = \"npx -y 'a b'\"\neffects = \"read=pure\"\ntimeout = 0\nenv = { TOKEN = \"sesame\" }\n\
                [mcp.other]\ncommand = \"other\"\n[tools]\nallow = \"files, mcp__other__x, mcp\"\n";
    let settings = settings(Given {
        user,
        ..Given::default()
    });
    let [files, other] = &settings.servers[..] else {
        panic!("{:?}", settings.servers);
    };
    assert_eq!(
        (files.name.as_str(), files.program.as_str()),
        ("files", "npx")
    );
    assert_eq!(files.arguments, ["-y", "a b"]);
    assert_eq!(files.timeout, Some(Duration::from_secs(24 * 3600)));
    let [(name, value)] = &files.variables[..] else {
        panic!("{:?}", files.variables);
    };
    assert_eq!((name.as_str(), value.expose_secret()), ("TOKEN", "sesame"));
    assert_eq!((other.timeout, other.variables.len()), (None, 0));
    assert_eq!(settings.tools.allow, ["files", "mcp__other__x", "mcp"]);
    assert!(!format!("{settings:?}").contains("sesame"));
}

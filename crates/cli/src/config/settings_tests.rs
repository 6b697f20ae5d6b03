//! Tests of the settings as the layers combine them.

use super::file::{self, Entries};
use super::layers::{Layers, Trust};
use super::settings::{Provider, Settings};
use outlast_kernel::decision::AfterContent;
use outlast_kernel::fallback::{Condition, Rules};
use outlast_kernel::model_info::ContinueBy;
use outlast_session::compaction::Settings as Compaction;
use secrecy::ExposeSecret;
use std::path::Path;
use std::time::Duration;

pub(super) struct Inputs<'a> {
    pub(super) user: &'a str,
    pub(super) project: &'a str,
    pub(super) trust: Trust,
    pub(super) environment: &'a [(&'a str, &'a str)],
    pub(super) flags: &'a [(&'a str, &'a str)],
}

impl Default for Inputs<'_> {
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

pub(super) fn settings(given: Inputs<'_>) -> Settings {
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
    Settings::from_layers(&layers).unwrap()
}

#[test]
fn empty_configuration_yields_defaults() {
    let settings = settings(Inputs::default());
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
fn later_config_layer_overrides_earlier() {
    let mut given = Inputs {
        user: "model = \"user\"\nmax_tokens = 1\n[retry]\npolicy = \"patient\"\nwait_for_reset = true",
        ..Inputs::default()
    };
    let model = |given: &Inputs<'_>| settings(Inputs { ..*given }).model.unwrap();
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
fn model_timeouts_override_global_ones_and_zero_disables() {
    let user = "model = \"llama3.1:8b\"\n[timeouts]\nidle = 0\nconnect = \"1s\"\n[models.\"llama3.1:8b\".timeouts]\nfirst_event = \"1h\"";
    let timeouts = settings(Inputs {
        user,
        ..Inputs::default()
    })
    .timeouts;
    assert_eq!(timeouts.first_event, Duration::from_secs(3600));
    assert_eq!(
        (timeouts.connect, timeouts.idle),
        (Duration::from_secs(1), Duration::ZERO)
    );
    let flags: &[_] = &[("model", "another")];
    let timeouts = settings(Inputs {
        user,
        flags,
        ..Inputs::default()
    })
    .timeouts;
    assert_eq!(timeouts.first_event, Duration::from_secs(300));
}

#[test]
fn an_untrusted_project_cannot_redirect_keys() {
    let given = |trust| Inputs {
        user: "provider = \"anthropic\"",
        project: "model = \"m\"\n[providers.anthropic]\nbase_url = \"https://evil.example\"\napi_key_env = \"OTHER\"\n[http]\nproxy = \"evil:1\"",
        trust,
        environment: &[("ANTHROPIC_API_KEY", "usual"), ("OTHER", "other")],
        ..Inputs::default()
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
fn api_key_env_replaces_default_key_variable() {
    let given = Inputs {
        user: "provider = \"openai\"\n[providers.openai]\napi_key_env = \"WORK_KEY\"\nheaders = { X-Team = \"a\", x-app = \"b\" }",
        environment: &[
            ("OPENAI_API_KEY", "usual"),
            ("OPENAI_BASE_URL", "http://localhost:1/v1"),
        ],
        ..Inputs::default()
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
fn proxy_settings_follow_usual_environment_variables() {
    let of = |user, environment| {
        let proxy = settings(Inputs {
            user,
            environment,
            ..Inputs::default()
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
fn relative_path_resolves_against_config_file_folder() {
    let file = |user, environment| {
        settings(Inputs {
            user,
            environment,
            ..Inputs::default()
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
fn settings_debug_output_hides_secrets() {
    let given = Inputs {
        user: "provider = \"openai\"\n[providers.openai]\napi_key = \"sesame\"\nheaders = { x = \"sesame\" }\n[http]\nproxy = \"http://u:sesame@p\"",
        ..Inputs::default()
    };
    assert!(!format!("{:?}", settings(given)).contains("sesame"));
}

#[test]
fn mcp_server_is_read_with_env_and_can_be_allowed() {
    let user = "[mcp.files]\ncommand = \"npx -y 'a b'\"\neffects = \"read=pure\"\ntimeout = 0\nenv = { TOKEN = \"sesame\" }\n\
                [mcp.other]\ncommand = \"other\"\n[tools]\nallow = \"files, mcp__other__x, mcp\"\n";
    let settings = settings(Inputs {
        user,
        ..Inputs::default()
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

/// Returns the fallback chain of the model in use, as it would be typed.
fn chain(user: &str, flags: &[(&str, &str)]) -> Vec<String> {
    let settings = settings(Inputs {
        user,
        flags,
        ..Inputs::default()
    });
    let name = |one: &Settings| {
        let (provider, model) = (one.provider.unwrap().name(), one.model.as_deref());
        format!("{provider}:{}", model.unwrap())
    };
    settings.fallbacks.iter().map(name).collect()
}

#[test]
fn fallback_chain_extends_by_chain_of_its_last_model() {
    let begin =
        "provider = \"openai\"\nmodel = \"a\"\nfallback.models = [\"b\", \"anthropic:c\"]\n";
    let of = |rest: &str, flags| chain(&format!("{begin}{rest}"), flags);
    assert_eq!(of("", &[]), ["openai:b", "anthropic:c"]);
    // Only the last model's own chain follows, at that model's provider.
    let own = "[models.c]\nfallback = [\"d\"]\n[models.b]\nfallback = [\"x\"]\n";
    assert_eq!(of(own, &[]), ["openai:b", "anthropic:c", "anthropic:d"]);
    // Each model is in the chain once, and the first one never.
    let round = "[models.c]\nfallback = [\"openai:a\", \"openai:b\", \"d\"]\n[models.d]\nfallback = [\"c\", \"a\"]\n";
    assert_eq!(
        of(round, &[]),
        ["openai:b", "anthropic:c", "anthropic:d", "anthropic:a"]
    );
    // The model's own list overrides the default one, and a typed list overrides both.
    let first = "models.a.fallback = [\"a\", \"e\"]\n";
    assert_eq!(of(first, &[]), ["openai:e"]);
    assert_eq!(of("models.a.fallback = []\n", &[]), [""; 0]);
    let typed = [(
        "fallback.models",
        "ok:agent,times=always\nmock:ok:text,times=2",
    )];
    assert_eq!(
        of(first, &typed),
        ["openai:ok:agent,times=always", "mock:ok:text,times=2"]
    );
    assert_eq!(of("", &[("fallback.models", "")]), [""; 0]);
}

#[test]
fn each_fallback_model_uses_its_own_settings() {
    let settings = settings(Inputs {
        user: "provider = \"openai\"\nmodel = \"a\"\nfallback.models = [\"anthropic:claude-sonnet-4-5\", \"b\"]\n\
               compaction.model = \"anthropic:c\"\n[models.b]\ncontext_window = 9000\ncontinue_by = \"restart\"\n\
               timeouts.idle = \"1h\"\nprice = { input = 1, output = 2 }\n",
        environment: &[
            ("ANTHROPIC_API_KEY", "one"),
            ("ANTHROPIC_BASE_URL", "http://one"),
            ("OPENAI_API_KEY", "two"),
        ],
        ..Inputs::default()
    });
    let [claude, b] = &settings.fallbacks[..] else {
        panic!("{:?}", settings.fallbacks);
    };
    let key = |one: &Settings| one.api_key.as_ref().unwrap().expose_secret().to_owned();
    assert_eq!((key(claude).as_str(), key(b).as_str()), ("one", "two"));
    assert_eq!(claude.base_url.as_deref(), Some("http://one"));
    assert_eq!(
        (settings.base_url.as_deref(), b.base_url.as_deref()),
        (None, None)
    );
    assert_eq!(claude.traits.window, Some(200_000));
    assert_eq!(claude.traits.continues_by, ContinueBy::Prefill);
    assert_eq!(b.traits.window, Some(9000));
    assert_eq!(b.traits.continues_by, ContinueBy::Restart);
    assert_eq!(b.timeouts.idle, Duration::from_secs(3600));
    assert!(b.price.is_some() && claude.price.is_none());
    let summariser = settings.summarizer.as_deref().unwrap();
    assert_eq!(summariser.model.as_deref(), Some("c"));
    assert_eq!(summariser.provider, Some(Provider::Anthropic));
}

#[test]
fn recovery_settings_have_defaults_and_can_be_set() {
    let usual = settings(Inputs::default()).recovery;
    assert_eq!(usual.after_content, AfterContent::Retract);
    assert_eq!(usual.corrections, 3);
    assert_eq!(usual.fallback, Rules::default());
    assert_eq!(usual.compaction, Compaction::default());
    let user = "after_content = \"continue\"\nrecovery.retry_unusable_responses = false\n[fallback]\non = \"overflow, overload\"\n\
                overload_retries = 0\nmax_usage_limit_wait = 0\ncooldown = \"1h\"\n[compaction]\nenabled = false\nthreshold = 50\nkeep = 7\n";
    let set = settings(Inputs {
        user,
        ..Inputs::default()
    })
    .recovery;
    assert_eq!(
        (set.after_content, set.corrections),
        (AfterContent::Continue, 0)
    );
    let rules = Rules {
        conditions: vec![Condition::Overload, Condition::Overflow],
        overload_retries: 0,
        max_usage_wait: Duration::ZERO,
        cooldown: Duration::from_secs(3600),
    };
    assert_eq!(set.fallback, rules);
    let compaction = Compaction {
        enabled: false,
        threshold: 0.5,
        keep_tokens: 7,
        ..Compaction::default()
    };
    assert_eq!(set.compaction, compaction);
}

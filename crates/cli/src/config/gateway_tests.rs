//! Tests of the gateway's settings as the layers combine them.

use super::layers::Trust;
use super::sections::gateway::{BodyStore, Upstream};
use super::settings_tests::{Inputs, settings};
use outlast_kernel::policy::Policy;
use secrecy::ExposeSecret;
use std::time::Duration;

#[test]
fn gateway_defaults_to_provider_urls_and_gateway_policy() {
    let gateway = settings(Inputs::default()).gateway;
    assert_eq!(gateway.listen.to_string(), "127.0.0.1:4180");
    assert_eq!(
        (&gateway.anthropic, &gateway.openai),
        (&Upstream::ProviderDefault, &Upstream::ProviderDefault)
    );
    assert_eq!(gateway.policy.name, "gateway");
    assert_eq!(gateway.limits.max_body, 64 << 20);
    assert_eq!(gateway.limits.max_connections, 20_000);
    assert_eq!(gateway.limits.max_waiting, 10_000);
    assert_eq!(gateway.limits.drain, Duration::from_secs(30));
    assert_eq!(gateway.timeouts.headers, Duration::from_secs(900));
    assert_eq!(gateway.timeouts.idle, Duration::from_secs(300));
    assert_eq!(
        (gateway.use_accounts, gateway.body_store),
        (false, BodyStore::DefaultFolder)
    );
}

#[test]
fn gateway_settings_are_read_from_file_and_flags() {
    let gateway = settings(Inputs {
        user: "[gateway]\nlisten = \"0.0.0.0:80\"\npolicies = [\"/v1/embeddings=standard\", \"/v1=patient\"]\n\
               allowed_hosts = \"box.example, other\"\norigins = [\"https://page.example\"]\nclient_keys = [\"sesame\", \"open\"]\n\
               use_accounts = true\nmax_body = \"1MiB\"\nmax_waiting = 7\nidle_timeout = 9\nspool = \"bodies\"\n\
               [timeouts]\nfirst_event = \"1h\"\n",
        flags: &[("gateway.client", "codex")],
        ..Inputs::default()
    })
    .gateway;
    assert!(!gateway.is_local() && gateway.use_accounts);
    let policies = gateway.policies.iter();
    let policies: Vec<_> = policies
        .map(|(path, policy)| (path.as_str(), policy.name.as_str()))
        .collect();
    assert_eq!(
        policies,
        [("/v1/embeddings", "standard"), ("/v1", "patient")]
    );
    assert_eq!(gateway.host_names, ["box.example", "other"]);
    assert_eq!(gateway.origins, ["https://page.example"]);
    let keys: Vec<&str> = gateway
        .client_keys
        .iter()
        .map(|key| key.expose_secret())
        .collect();
    assert_eq!(keys, ["sesame", "open"]);
    assert!(!format!("{gateway:?}").contains("sesame"));
    assert_eq!(
        (gateway.limits.max_body, gateway.limits.max_waiting),
        (1 << 20, 7)
    );
    assert_eq!(gateway.timeouts.first_event, Duration::from_secs(3600));
    assert_eq!(gateway.timeouts.idle, Duration::from_secs(9));
    assert_eq!(gateway.client.as_deref(), Some("codex"));
    assert_eq!(gateway.body_store, BodyStore::Folder("/home/bodies".into()));
}

#[test]
fn upstream_flag_overrides_upstreams_of_user_file() {
    let user = "[gateway]\nupstream = \"https://all.example\"\nopenai_upstream = \"mock:ok\"\n";
    let both = |flags| {
        let gateway = settings(Inputs {
            user,
            flags,
            ..Inputs::default()
        })
        .gateway;
        (gateway.anthropic, gateway.openai)
    };
    let url = |url: &str| Upstream::Url(url.to_owned());
    let scripted = Upstream::Scripted("ok".to_owned());
    assert_eq!(both(&[]), (url("https://all.example"), scripted));
    let typed = both(&[("gateway.upstream", "http://typed.example/v1")]);
    assert_eq!(
        typed,
        (
            url("http://typed.example/v1"),
            url("http://typed.example/v1")
        )
    );
}

#[test]
fn gateway_ignores_base_url_environment_variables() {
    let gateway = settings(Inputs {
        environment: &[
            ("ANTHROPIC_BASE_URL", "http://127.0.0.1:4180"),
            ("OPENAI_BASE_URL", "http://127.0.0.1:4180/v1"),
        ],
        ..Inputs::default()
    })
    .gateway;
    assert_eq!(
        (gateway.anthropic, gateway.openai),
        (Upstream::ProviderDefault, Upstream::ProviderDefault)
    );
}

#[test]
fn gateway_policy_follows_retry_enabled_not_max_retries() {
    let given = |user| {
        settings(Inputs {
            user,
            ..Inputs::default()
        })
        .gateway
        .policy
    };
    assert_eq!(given("retry.enabled = false\n").name, "none");
    let other = given("[retry]\nmax_retries = 1\nwait_for_reset = true\n");
    assert_eq!(
        (other.name.as_str(), other.wait_for_reset),
        ("gateway", true)
    );
    assert_eq!(other.retries(), Policy::named("gateway").unwrap().retries());
}

#[test]
fn untrusted_project_cannot_set_gateway_upstream() {
    let gateway = settings(Inputs {
        project: "gateway.upstream = \"https://evil.example\"\n",
        trust: Trust::Untrusted,
        ..Inputs::default()
    })
    .gateway;
    assert_eq!(gateway.anthropic, Upstream::ProviderDefault);
}

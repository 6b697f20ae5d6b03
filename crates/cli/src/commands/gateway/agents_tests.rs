use super::*;
use clap::ValueEnum;

const BASE: GatewayEndpoint<'_> = GatewayEndpoint {
    url: "http://127.0.0.1:4180",
    openai_path: OPENAI_PATH,
};

fn all(shell: EnvFormat) -> String {
    let agents = AgentName::value_variants().iter();
    let one = |agent: &AgentName| {
        let recipe = agent_setup(Agent::Known(*agent), BASE, CodexKey::Login);
        format!("== {agent:?}\n{}", render(&recipe, shell))
    };
    agents.map(one).collect()
}

#[test]
fn env_output_covers_every_agent_in_sh() {
    insta::assert_snapshot!(all(EnvFormat::Sh));
}

#[test]
fn env_output_covers_every_agent_in_fish() {
    insta::assert_snapshot!(all(EnvFormat::Fish));
}

#[test]
fn env_output_covers_every_agent_in_json() {
    insta::assert_snapshot!(all(EnvFormat::Json));
}

#[test]
fn value_is_quoted_when_shell_would_split_or_expand_it() {
    let table = [
        ("http://host:1/v1", "http://host:1/v1", "http://host:1/v1"),
        ("a b", "'a b'", "'a b'"),
        ("it's", r"'it'\''s'", r"'it\'s'"),
        (r"a\b", r"'a\b'", r"'a\\b'"),
        ("$(x)", "'$(x)'", "'$(x)'"),
        ("", "''", "''"),
    ];
    for (value, sh, fish) in table {
        assert_eq!(
            (quote_sh(value), quote_fish(value)),
            (sh.into(), fish.into())
        );
    }
}

#[test]
fn chatgpt_upstream_uses_codex_path() {
    let path = |upstream: &Upstream| GatewayEndpoint::new("http://g", upstream).openai_path;
    let chatgpt = Upstream::Url("https://chatgpt.com/".to_owned());
    assert_eq!(path(&chatgpt), "/backend-api/codex");
    let other = Upstream::Url("https://example.com".to_owned());
    assert_eq!(path(&other), "/v1");
    assert_eq!(path(&Upstream::ProviderDefault), "/v1");
}

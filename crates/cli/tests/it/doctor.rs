//! `outlast doctor`: its checks and remedies, and the secrets that it hides.

use crate::mock_server::{DIALECTS, MockServer, PLANTED};
use crate::support::{CommandResult, Outlast};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

/// Returns the state and the text of each check, by its subject.
fn checks(ran: &CommandResult) -> Vec<(String, String, String)> {
    let checks: Vec<Value> = serde_json::from_str(&ran.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    checks
        .iter()
        .map(|check| {
            (
                text(&check["check"]),
                text(&check["state"]),
                text(&check["says"]),
            )
        })
        .collect()
}

fn state<'a>(checks: &'a [(String, String, String)], subject: &str) -> &'a str {
    let found = checks.iter().find(|(name, _, _)| name == subject);
    found.map_or("", |(_, state, _)| state.as_str())
}

fn doctor(mock: &MockServer, dialect: &str, variables: &[(&str, &str)]) -> CommandResult {
    let url = mock.url();
    let arguments = [
        "doctor",
        "--json",
        "--provider",
        dialect,
        "--model",
        "m",
        "--base-url",
        &url,
    ];
    let mut command = mock.outlast.command(&arguments);
    command
        .env("ANTHROPIC_API_KEY", PLANTED)
        .env("OPENAI_API_KEY", PLANTED);
    command.envs(variables.iter().copied());
    CommandResult::of(&mut command)
}

#[test]
fn doctor_passes_with_reachable_provider() {
    let outlast = || Outlast {
        scale: "1",
        ..Outlast::new()
    };
    for dialect in DIALECTS {
        let mock = MockServer::start_in(outlast());
        let ran = doctor(&mock, dialect, &[]);
        let checks = checks(&ran);
        for subject in ["files", "settings", "provider", "network", "clock"] {
            assert_eq!(
                state(&checks, subject),
                "ok",
                "{dialect} {subject}: {}",
                ran.stdout
            );
        }
        assert_eq!(ran.code, 0);
        assert!(
            ran.stdout.contains(r#""formerly": "way""#),
            "{}",
            ran.stdout
        );
        assert!(!ran.stdout.contains(PLANTED));
    }
}

#[test]
fn doctor_warns_of_clock_skew_and_time_scale() {
    let mock = MockServer::start();
    let ran = doctor(&mock, "openai", &[("OUTLAST_TIME_SCALE", "1")]);
    let found = checks(&ran);
    assert_eq!(state(&found, "clock"), "warning", "{}", ran.stdout);
    let found = checks(&doctor(&mock, "openai", &[]));
    assert_eq!(state(&found, "time scale"), "warning");
}

#[test]
fn doctor_reports_unreachable_provider_and_proxy() {
    let mock = MockServer::start();
    let nobody = [
        "doctor",
        "--provider",
        "openai",
        "--model",
        "m",
        "--base-url",
        "http://127.0.0.1:1",
    ];
    let ran = mock.outlast.run(&nobody);
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    assert!(ran.stdout.contains("Connection failed: "), "{}", ran.stdout);
    assert!(
        ran.stdout
            .contains("-> look at the base URL, the proxy and the network"),
        "{}",
        ran.stdout
    );

    let proxy = "http://me:hunter2@127.0.0.1:1";
    let ran = doctor(&mock, "openai", &[("HTTP_PROXY", proxy)]);
    let found = checks(&ran);
    assert_eq!(
        (state(&found, "proxy"), state(&found, "network")),
        ("ok", "error")
    );
    assert!(!ran.stdout.contains("hunter2"), "{}", ran.stdout);

    let ran = mock.outlast.run(&["doctor"]);
    assert_eq!(ran.code, 0);
    assert!(ran.stdout.contains("none is chosen"), "{}", ran.stdout);
}

#[test]
fn doctor_reports_files_readable_by_others() {
    let outlast = Outlast::new();
    outlast.run(&["-p", "hi", "--model", "ok"]);
    let file = outlast.home().join("outlast.toml");
    std::fs::write(&file, "model = \"ok\"\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let ran = outlast.run(&["doctor"]);
    assert_eq!(ran.code, 0);
    let said = "only their folder keeps others from";
    assert!(
        ran.stdout.contains(said) && ran.stdout.contains("chmod"),
        "{}",
        ran.stdout
    );
    // A link is as private as its target.
    let elsewhere = outlast.folder.path().join("elsewhere.toml");
    std::fs::rename(&file, &elsewhere).unwrap();
    std::fs::set_permissions(&elsewhere, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
    assert!(outlast.run(&["doctor"]).stdout.contains("is private"));
    std::fs::set_permissions(outlast.home(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let ran = outlast.run(&["doctor"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stdout.contains("others on this machine can look into"),
        "{}",
        ran.stdout
    );
}

#[test]
fn doctor_checks_every_account() {
    // With a scaled clock, a provider would have a fortieth of a second to respond.
    let mock = MockServer::start_in(Outlast::in_real_time());
    std::fs::create_dir_all(mock.outlast.home()).unwrap();
    let settings = format!(
        "[accounts.work]\nprovider = \"openai\"\napi_key_command = \"echo {PLANTED}\"\n\
         [accounts.home]\nprovider = \"openai\"\napi_key_command = \"echo {PLANTED}; exit 3\"\n"
    );
    std::fs::write(mock.outlast.home().join("outlast.toml"), settings).unwrap();
    let ran = doctor(&mock, "openai", &[]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stdout.contains("account work: the provider answers"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout
            .contains("account home: the command failed (exit status: 3)"),
        "{}",
        ran.stdout
    );
    assert!(!ran.stdout.contains(PLANTED));
}

#[test]
fn doctor_reports_invalid_settings() {
    let outlast = Outlast::new();
    std::fs::create_dir_all(outlast.home()).unwrap();
    std::fs::write(outlast.home().join("outlast.toml"), "modle = 1\n").unwrap();
    let ran = outlast.run(&["doctor", "--json"]);
    assert_eq!(ran.code, 1);
    let found = checks(&ran);
    let settings = found
        .iter()
        .find(|(name, _, _)| name == "settings")
        .unwrap();
    assert!(settings.2.contains("did you mean `model`"), "{settings:?}");
}

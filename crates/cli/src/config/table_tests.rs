use super::*;

#[test]
fn risky_settings_are_restricted_and_credentials_secret() {
    for setting in SETTINGS {
        let redirects = ["models.<model>.fallback", "compaction.model"];
        let risky = [
            "providers.",
            "http.",
            "accounts.",
            "tools.",
            "mcp.",
            "hooks.",
            "limits.",
            "fallback.",
            "gateway.",
            "serve.",
        ]
        .iter()
        .any(|group| setting.path.starts_with(group))
            || redirects.contains(&setting.path)
            || setting.path.contains(".price.");
        assert_eq!(setting.restricted, risky, "{}", setting.path);
        assert!(!setting.secret || setting.restricted, "{}", setting.path);
        assert_eq!(
            setting.secret,
            matches!(setting.kind, Kind::Credential | Kind::Credentials),
            "{}",
            setting.path
        );
    }
}

#[test]
fn every_fallback_condition_and_continue_mode_can_be_set() {
    assert!(Condition::ALL.map(Condition::as_str).iter().eq(CONDITIONS));
    assert!(
        ContinueBy::ALL
            .map(ContinueBy::as_str)
            .iter()
            .eq(CONTINUE_MODES)
    );
}

#[test]
fn every_hook_event_can_be_set() {
    assert!(HookEvent::ALL.map(HookEvent::as_str).iter().eq(HOOK_EVENTS));
}

#[test]
fn setting_paths_are_unique() {
    let mut paths: Vec<&str> = SETTINGS.iter().map(|setting| setting.path).collect();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), SETTINGS.len());
}

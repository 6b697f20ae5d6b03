use super::*;

#[test]
fn risky_and_secret_settings_are_restricted() {
    for setting in settings() {
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
        assert_eq!(setting.is_restricted(), risky, "{}", setting.path);
        let is_secret = setting.kind.is_secret();
        assert!(!is_secret || setting.is_restricted(), "{}", setting.path);
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
    let mut paths: Vec<&str> = settings().map(|setting| setting.path).collect();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), settings().count());
}

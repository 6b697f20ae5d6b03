//! The settings that were renamed. Their old names are accepted for one version, with a notice.
//!
//! Invariant: an old name is no setting any more, and its table still is a table of settings. Not here: variables of the
//! environment and flags, which have names of their own.

use super::key::Key;

/// The version that no longer accepts the old names.
const OLD_NAMES_END: &str = "0.3";

/// A setting that was renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Renamed {
    /// The old path, without placeholders.
    pub(crate) old: &'static str,
    /// The path in the table of settings.
    pub(crate) new: &'static str,
}

/// All settings that were renamed.
pub(crate) const RENAMED: [Renamed; 5] = [
    renamed("recovery.odd_answers", "recovery.retry_unusable_responses"),
    renamed("fallback.usage_wait", "fallback.max_usage_limit_wait"),
    renamed("gateway.names", "gateway.allowed_hosts"),
    renamed("serve.names", "serve.allowed_hosts"),
    renamed("serve.max_requests", "serve.max_requests_per_second"),
];

const fn renamed(old: &'static str, new: &'static str) -> Renamed {
    Renamed { old, new }
}

impl Renamed {
    fn find(key: &Key) -> Option<&'static Self> {
        RENAMED
            .iter()
            .find(|renamed| Key::from_path(renamed.old) == *key)
    }

    /// Returns the key under which the setting is known, and the renaming if the given key is an old name.
    pub(crate) fn resolve(key: Key) -> (Key, Option<&'static Self>) {
        match Self::find(&key) {
            Some(renamed) => (Key::from_path(renamed.new), Some(renamed)),
            None => (key, None),
        }
    }

    /// Returns the notice for somebody who uses the old name.
    pub(crate) fn notice(&self) -> String {
        let Self { old, new } = self;
        format!("`{old}` is now `{new}`; the old name is accepted until {OLD_NAMES_END}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_names_are_free_and_new_names_exist() {
        for renamed in RENAMED {
            let old = Key::from_path(renamed.old);
            assert!(old.setting().is_none(), "{}", renamed.old);
            let (table, _) = renamed.old.rsplit_once('.').unwrap();
            assert!(Key::from_path(table).is_table(), "{}", renamed.old);
            let (new, found) = Renamed::resolve(old);
            assert!(new.setting().is_some(), "{}", renamed.new);
            assert_eq!(found, Some(&renamed));
        }
    }
}

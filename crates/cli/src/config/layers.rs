//! The layers of settings: defaults, the user's file, the project's file, the environment, flags.
//!
//! Invariant: a setting that a project may not set before it is trusted is never in `effective`.

use super::file::Entries;
use super::key::Key;
use super::problem::Problem;
use super::renamed::Renamed;
use super::table::{Setting, Variable, settings};
use super::value::{FromValue, RawValue, Value};
use secrecy::SecretString;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    User { file: PathBuf, line: usize },
    Project { file: PathBuf, line: usize },
    Environment(String),
    Flag(String),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::User { file, line } => write!(f, "user file {}:{line}", file.display()),
            Self::Project { file, line } => write!(f, "project file {}:{line}", file.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

impl Origin {
    pub(crate) const fn layer(&self) -> Layer {
        match self {
            Self::Default => Layer::Default,
            Self::User { .. } => Layer::User,
            Self::Project { .. } => Layer::Project,
            Self::Environment(_) => Layer::Environment,
            Self::Flag(_) => Layer::Flag,
        }
    }

    /// Returns the folder that relative paths start from, if it is not the current one.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match self {
            Self::User { file, .. } | Self::Project { file, .. } => file.parent(),
            _ => None,
        }
    }
}

/// The layers in their order: a later one overrides an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Layer {
    Default,
    User,
    Project,
    Environment,
    Flag,
}

#[derive(Clone, Debug)]
pub(crate) struct SourcedValue {
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

/// Whether a project's restricted settings count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    Trusted,
    Untrusted,
}

/// A lookup of environment variables.
pub(crate) type EnvLookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

#[derive(Debug, Default)]
pub(crate) struct Layers {
    pub(crate) effective: BTreeMap<Key, SourcedValue>,
    /// Settings of a project that is not trusted.
    pub(crate) ignored: BTreeMap<Key, SourcedValue>,
    pub(crate) problems: Vec<Problem>,
    /// Notices about old names of settings, each with its location.
    pub(crate) notices: Vec<String>,
}

impl Layers {
    pub(crate) fn defaults() -> Self {
        let mut layers = Self::default();
        for setting in settings() {
            if let Some(text) = setting.default {
                let key = Key::from_path(setting.path);
                layers.insert_parsed(setting, key, Origin::Default, text);
            }
        }
        layers
    }

    /// Uses the value of `other` for the setting at `path` if nobody has set that.
    pub(crate) fn apply_default_from(&mut self, path: &str, other: &str) {
        let found = |path: &str| self.effective.get(&Key::from_path(path));
        let is_set = found(path).is_some_and(|found| found.origin != Origin::Default);
        if let Some(other) = found(other).cloned().filter(|_| !is_set) {
            self.effective.insert(Key::from_path(path), other);
        }
    }

    pub(crate) fn user(&mut self, file: &Path, entries: Entries) {
        for (key, entry) in entries {
            self.notices.extend(entry.notice(file));
            let (file, line, value) = (file.to_owned(), entry.line, entry.value);
            let origin = Origin::User { file, line };
            self.effective.insert(key, SourcedValue { value, origin });
        }
    }

    pub(crate) fn project(&mut self, file: &Path, entries: Entries, trust: Trust) {
        // A project's lists of tables continue those of the user instead of overwriting them.
        let numbers = self.effective.keys().filter_map(Key::list_index);
        let last = numbers.max().unwrap_or(0);
        for (key, entry) in entries {
            self.notices.extend(entry.notice(file));
            let restricted = key.setting().is_none_or(Setting::is_restricted);
            let (file, line, value) = (file.to_owned(), entry.line, entry.value);
            let origin = Origin::Project { file, line };
            let found = SourcedValue { value, origin };
            if restricted && trust == Trust::Untrusted {
                self.ignored.insert(key, found);
            } else {
                self.effective.insert(key.shifted_by(last), found);
            }
        }
    }

    /// Applies the environment. Call it after the files, since `api_key_env` names the variable that holds a key.
    pub(crate) fn environment(&mut self, lookup: EnvLookup<'_>) {
        for setting in settings() {
            let mut done: Vec<Key> = Vec::new();
            for variable in setting.variables {
                let key = variable.provider.map_or_else(
                    || Key::from_path(setting.path),
                    |name| Key::with_name(setting.path, name),
                );
                let name = self.variable(setting, variable);
                let text = lookup(&name).filter(|text| !text.is_empty());
                if let Some(text) = text.filter(|_| !done.contains(&key)) {
                    self.apply_variable(setting, key.clone(), &name, &text);
                    done.push(key);
                }
            }
        }
    }

    /// Returns the variable to read, which the settings may have changed.
    fn variable(&self, setting: &Setting, variable: &Variable) -> String {
        let renamed = variable
            .provider
            .filter(|_| setting.path == API_KEY)
            .and_then(|provider| self.named("providers", provider).get("api_key_env"));
        renamed.unwrap_or_else(|| variable.name.to_owned())
    }

    fn apply_variable(&mut self, setting: &Setting, key: Key, name: &str, text: &OsString) {
        let origin = Origin::Environment(name.to_owned());
        match text.to_str() {
            Some(text) => self.insert_parsed(setting, key, origin, text),
            None => self.problems.push(Problem {
                location: origin.to_string(),
                key: Some(key),
                text: "is not UTF-8 text".to_owned(),
            }),
        }
    }

    /// Applies a flag, given by the path of its setting.
    pub(crate) fn flag(&mut self, path: &str, text: &str) {
        let (key, renamed) = Renamed::resolve(Key::from_path(path));
        if let Some(renamed) = renamed {
            let notice = renamed.notice();
            self.notices.push(format!("flag --{path}: {notice}"));
        }
        let flag = key.setting().and_then(|setting| setting.flag);
        let origin = Origin::Flag(flag.map_or_else(|| format!("--{path}"), str::to_owned));
        match key.setting() {
            Some(setting) => self.insert_parsed(setting, key, origin, text),
            None => self.problems.push(Problem {
                location: origin.to_string(),
                key: Some(key),
                text: "there is no such setting".to_owned(),
            }),
        }
    }

    fn insert_parsed(&mut self, setting: &Setting, key: Key, origin: Origin, text: &str) {
        match Value::parse(setting.kind, RawValue::Untyped(text)) {
            Ok(value) => drop(self.effective.insert(key, SourcedValue { value, origin })),
            Err(text) => self.problems.push(Problem {
                location: origin.to_string(),
                key: Some(key),
                text,
            }),
        }
    }

    // --- Reading ---

    /// Returns the value of the setting at a path without placeholders, if it is set.
    pub(super) fn get<T: FromValue>(&self, path: &str) -> Option<T> {
        self.table("").get(path)
    }

    /// Returns the value of a setting or of a more general one. A later layer wins; within a layer the specific one does.
    pub(super) fn get_or_general<T: FromValue>(&self, path: &str, general: &str) -> Option<T> {
        let found = |path: &str| self.effective.get(&Key::from_path(path));
        let chosen = match (found(path), found(general)) {
            (Some(own), Some(any)) if any.origin.layer() > own.origin.layer() => any,
            (own, any) => own.or(any)?,
        };
        T::from_value(&chosen.value)
    }

    /// Returns the table of settings at a path without placeholders.
    pub(super) fn table(&self, path: &str) -> Table<'_> {
        let key = Key::default().below(path);
        Table { layers: self, key }
    }

    /// Returns the table of settings with that name, such as one of the accounts.
    pub(super) fn named(&self, path: &str, name: &str) -> Table<'_> {
        let key = Key::from_path(path).child(name);
        Table { layers: self, key }
    }

    /// Returns the names of the tables at a path, such as those of all accounts.
    pub(super) fn names(&self, path: &str) -> BTreeSet<&str> {
        let keys = self.effective.keys();
        keys.filter_map(|key| key.name_below(path)).collect()
    }
}

/// A table of settings, as the layers combine it.
pub(super) struct Table<'a> {
    layers: &'a Layers,
    key: Key,
}

impl<'a> Table<'a> {
    fn found(&self, path: &str) -> Option<&'a SourcedValue> {
        self.layers.effective.get(&self.key.below(path))
    }

    /// Returns the value of a setting of the table, if it is set.
    pub(super) fn get<T: FromValue>(&self, path: &str) -> Option<T> {
        T::from_value(&self.found(path)?.value)
    }

    /// Returns the value of a setting that has a default, or whose absence means the same as an empty value.
    pub(super) fn value<T: FromValue + Default>(&self, path: &str) -> T {
        self.get(path).unwrap_or_default()
    }

    /// Returns a duration that zero switches off.
    pub(super) fn limit(&self, path: &str) -> Option<Duration> {
        self.get(path).filter(|limit: &Duration| !limit.is_zero())
    }

    /// Returns a path of the file system: relative to the folder of the file that has it, with `~` for the user's home.
    pub(super) fn file(&self, path: &str) -> Option<PathBuf> {
        let text: String = self.get(path)?;
        if let (Some(rest), Some(user)) = (text.strip_prefix("~/"), std::env::home_dir()) {
            return Some(user.join(rest));
        }
        let folder = self.found(path)?.origin.folder();
        Some(folder.unwrap_or(Path::new("")).join(text))
    }

    /// Returns the secrets directly in the table, by name.
    pub(super) fn secrets(&self, path: &str) -> Vec<(String, SecretString)> {
        let table = self.key.below(path);
        let all = self.layers.effective.iter();
        let own = all.filter(|(key, _)| key.is_directly_in(&table));
        own.filter_map(|(key, found)| {
            Some((key.last().to_owned(), FromValue::from_value(&found.value)?))
        })
        .collect()
    }
}

const API_KEY: &str = "providers.<provider>.api_key";

/// Returns the name of the variable that holds a provider's key.
pub(crate) fn key_variable(layers: &Layers, provider: &str) -> Option<String> {
    let setting = settings().find(|setting| setting.path == API_KEY)?;
    let mut variables = setting.variables.iter();
    let variable = variables.find(|variable| variable.provider == Some(provider))?;
    Some(layers.variable(setting, variable))
}

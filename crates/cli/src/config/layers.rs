//! The layers of settings: defaults, the user's file, the project's file, the environment, flags.
//!
//! Invariant: a setting that a project may not set before it is trusted is never in `effective`.

use super::file::Entries;
use super::key::Key;
use super::problem::{Location, Problem};
use super::renamed::Renamed;
use super::table::{SETTINGS, Setting, Variable};
use super::value::{RawValue, Value};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

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
        for setting in SETTINGS {
            if let Some(text) = setting.default {
                let given = RawSetting {
                    origin: Origin::Default,
                    location: Location::Flag("default".to_owned()),
                    text,
                };
                layers.insert_parsed(setting, Key::from_path(setting.path), given);
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
            let (file, line) = (file.to_owned(), entry.line);
            let origin = Origin::User { file, line };
            let value = entry.value;
            self.effective.insert(key, SourcedValue { value, origin });
        }
    }

    pub(crate) fn project(&mut self, file: &Path, entries: Entries, trust: Trust) {
        // A project's lists of tables continue those of the user instead of overwriting them.
        let numbers = self.effective.keys().filter_map(Key::list_index);
        let last = numbers.max().unwrap_or(0);
        for (key, entry) in entries {
            self.notices.extend(entry.notice(file));
            let restricted = key.setting().is_none_or(|setting| setting.restricted);
            let (file, line) = (file.to_owned(), entry.line);
            let origin = Origin::Project { file, line };
            let value = entry.value;
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
        for setting in SETTINGS {
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
            .and_then(|provider| self.text(&Key::with_name(API_KEY_VARIABLE, provider)));
        renamed.unwrap_or(variable.name).to_owned()
    }

    fn apply_variable(&mut self, setting: &Setting, key: Key, name: &str, text: &OsString) {
        let location = Location::Variable(name.to_owned());
        let Some(text) = text.to_str() else {
            let text = "is not UTF-8 text".to_owned();
            self.problems.push(Problem {
                location,
                key: Some(key),
                text,
            });
            return;
        };
        let origin = Origin::Environment(name.to_owned());
        self.insert_parsed(
            setting,
            key,
            RawSetting {
                origin,
                location,
                text,
            },
        );
    }

    /// Applies a flag, given by the path of its setting.
    pub(crate) fn flag(&mut self, path: &str, text: &str) {
        let (key, renamed) = Renamed::resolve(Key::from_path(path));
        if let Some(renamed) = renamed {
            let notice = renamed.notice();
            self.notices.push(format!("flag --{path}: {notice}"));
        }
        let name = |setting: &Setting| {
            setting
                .flag
                .map_or_else(|| format!("--{path}"), str::to_owned)
        };
        match key.setting() {
            Some(setting) => {
                let given = RawSetting {
                    origin: Origin::Flag(name(setting)),
                    location: Location::Flag(name(setting)),
                    text,
                };
                self.insert_parsed(setting, key, given);
            }
            None => self.problems.push(Problem {
                location: Location::Flag(format!("--{path}")),
                key: Some(key),
                text: "there is no such setting".to_owned(),
            }),
        }
    }

    fn insert_parsed(&mut self, setting: &Setting, key: Key, source: RawSetting<'_>) {
        let RawSetting {
            origin,
            location,
            text,
        } = source;
        match Value::parse(setting, RawValue::Untyped(text)) {
            Ok(value) => drop(self.effective.insert(key, SourcedValue { value, origin })),
            Err(text) => self.problems.push(Problem {
                location,
                key: Some(key),
                text,
            }),
        }
    }

    pub(crate) fn text(&self, key: &Key) -> Option<&str> {
        match self.effective.get(key).map(|found| &found.value) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }
}

const API_KEY: &str = "providers.<provider>.api_key";
const API_KEY_VARIABLE: &str = "providers.<provider>.api_key_env";

/// Returns the name of the variable that holds a provider's key.
pub(crate) fn key_variable(layers: &Layers, provider: &str) -> Option<String> {
    let setting = SETTINGS.iter().find(|setting| setting.path == API_KEY)?;
    let variable = setting
        .variables
        .iter()
        .find(|variable| variable.provider == Some(provider))?;
    Some(layers.variable(setting, variable))
}

/// A text and its location.
struct RawSetting<'a> {
    origin: Origin,
    location: Location,
    text: &'a str,
}

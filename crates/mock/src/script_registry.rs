//! Selects the script for a request, and tracks the state of each script.
//!
//! Precedence: a script that was set through the control endpoints, then the one named in a header, then the one that
//! the model was given at startup, then the model's name, then the default. Each model that was given a script has its
//! own state; other scripts with the same text share one, so that the retries of a run advance it.
//! Invariant: the number of stored scripts is bounded; the least recently used one is dropped.

use crate::script;
use crate::script::{Error, Script};

const MAX_SCRIPTS: usize = 256;

#[derive(Debug)]
pub(crate) struct ScriptRegistry {
    default: Script,
    /// The scripts that models were given at startup: as written, and in their current state.
    by_model: Vec<(String, Script, Script)>,
    /// The scripts that were set at run time: for one model, or for all.
    overrides: Vec<(Option<String>, Script)>,
    /// Other scripts; the most recently used is last.
    recent: Vec<Script>,
}

impl ScriptRegistry {
    pub(crate) fn new(default: Script) -> Self {
        Self {
            default,
            by_model: Vec::new(),
            overrides: Vec::new(),
            recent: Vec::new(),
        }
    }

    /// Gives a model a script of its own.
    pub(crate) fn assign_to_model(&mut self, model: String, script: Script) {
        self.by_model.retain(|(known, ..)| *known != model);
        self.by_model.push((model, script.clone(), script));
    }

    /// Sets the script for one model or for all, from its beginning.
    pub(crate) fn set_override(&mut self, model: Option<String>, script: Script) {
        self.overrides.retain(|(known, _)| *known != model);
        self.overrides.push((model, script));
        if self.overrides.len() > MAX_SCRIPTS {
            self.overrides.remove(0);
        }
    }

    /// Removes the scripts that were set, and resets the state of all others.
    pub(crate) fn reset(&mut self) {
        self.overrides.clear();
        self.recent.clear();
        for (_, written, playing) in &mut self.by_model {
            playing.clone_from(written);
        }
    }

    /// Returns the script to play. A name in a header must be a script; a model may be any name.
    pub(crate) fn select(
        &mut self,
        named: Option<&str>,
        model: &str,
    ) -> Result<&mut Script, Error> {
        let for_model = self
            .overrides
            .iter()
            .position(|(known, _)| known.as_deref() == Some(model));
        let for_all = || self.overrides.iter().position(|(known, _)| known.is_none());
        if let Some(place) = for_model.or_else(for_all) {
            return Ok(&mut self.overrides[place].1);
        }
        let given = self.by_model.iter().position(|(known, ..)| known == model);
        if let (None, Some(place)) = (named, given) {
            return Ok(&mut self.by_model[place].2);
        }
        let script = match named {
            Some(named) => named.parse()?,
            None => match model.parse() {
                Ok(script) => script,
                // A misspelt fault must not be taken for a working model.
                Err(error) if script::starts_with_fault_name(model) => return Err(error),
                Err(_) => self.default.clone(),
            },
        };
        Ok(self.remember(script))
    }

    fn remember(&mut self, script: Script) -> &mut Script {
        let known = self
            .recent
            .iter()
            .position(|known| known.text() == script.text());
        let script = match known {
            Some(place) => self.recent.remove(place),
            None if self.recent.len() >= MAX_SCRIPTS => {
                self.recent.remove(0);
                script
            }
            None => script,
        };
        self.recent.push(script);
        let last = self.recent.len() - 1;
        &mut self.recent[last]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_kernel::Timestamp;

    fn book() -> ScriptRegistry {
        ScriptRegistry::new("ok:empty".parse().unwrap())
    }

    fn play(book: &mut ScriptRegistry, named: Option<&str>, model: &str) -> String {
        let script = book.select(named, model).unwrap();
        script.next_reply(Timestamp::default(), &[]).fault
    }

    #[test]
    fn script_is_selected_by_override_header_model_or_default() {
        let mut book = book();
        assert_eq!(play(&mut book, None, "gpt-4o"), "ok:empty");
        assert_eq!(play(&mut book, None, "llama3:8b"), "ok");
        assert_eq!(play(&mut book, None, "overloaded:2"), "overloaded:2");
        assert_eq!(play(&mut book, Some("stall"), "overloaded:2"), "stall");
        book.set_override(None, "close".parse().unwrap());
        book.set_override(Some("gpt-4o".to_owned()), "reset".parse().unwrap());
        assert_eq!(play(&mut book, Some("stall"), "gpt-4o"), "reset");
        assert_eq!(play(&mut book, Some("stall"), "overloaded:2"), "close");
        assert_eq!(play(&mut book, None, "overloaded:2"), "ok");
        book.reset();
        assert_eq!(play(&mut book, None, "overloaded:2"), "overloaded:2");
    }

    #[test]
    fn each_model_plays_its_assigned_script() {
        let mut book = book();
        for model in ["big", "small", "ok"] {
            book.assign_to_model(model.to_owned(), "overloaded".parse().unwrap());
        }
        for model in ["big", "small", "ok"] {
            assert_eq!(play(&mut book, None, model), "overloaded", "{model}");
            assert_eq!(play(&mut book, None, model), "ok", "{model}");
        }
        assert_eq!(play(&mut book, None, "other"), "ok:empty");
        assert_eq!(play(&mut book, Some("stall"), "big"), "stall");
        book.set_override(None, "close".parse().unwrap());
        assert_eq!(play(&mut book, None, "big"), "close");
        book.reset();
        assert_eq!(play(&mut book, None, "big"), "overloaded");
    }

    #[test]
    fn malformed_script_as_model_name_is_an_error() {
        for model in ["error:999", "overloaded:many", "ok+overlaoded"] {
            assert!(book().select(None, model).is_err(), "{model}");
        }
    }

    #[test]
    fn invalid_script_header_is_an_error() {
        let error = book().select(Some("overlaoded"), "m").unwrap_err();
        assert!(error.to_string().contains("no such fault"), "{error}");
    }

    #[test]
    fn setting_a_script_restarts_it() {
        let mut book = book();
        for _ in 0..2 {
            book.set_override(None, "overloaded".parse().unwrap());
            assert_eq!(play(&mut book, None, "m"), "overloaded");
            assert_eq!(play(&mut book, None, "m"), "ok");
        }
    }

    #[test]
    fn remembered_scripts_are_bounded() {
        let mut book = book();
        for number in 0..3 * MAX_SCRIPTS {
            play(&mut book, None, "overloaded");
            play(&mut book, None, &format!("overloaded:{number}"));
        }
        assert_eq!(book.recent.len(), MAX_SCRIPTS);
        assert_eq!(play(&mut book, None, "overloaded"), "ok");
        assert_eq!(play(&mut book, None, "overloaded:1"), "overloaded:1");
    }
}

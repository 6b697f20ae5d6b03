//! What can be chosen while a chat goes on: the model, the policy; and what is shown on demand.

use crate::config::{ModelName, Provider};
use crate::tui::chat::{Change, Input};
use crate::tui::driver::{Driver, error_input};
use crate::tui::transcript::Tone;
use anyhow::Context;
use outlast_session::Setup;

impl Driver {
    /// Asks another model from the next message on.
    pub(in crate::tui::driver) fn choose_model(&mut self, name: &str) {
        let (Some(joined), Some(host)) = (&self.session, &self.host) else {
            return;
        };
        let chosen = resolve_model(name, &joined.model.provider).and_then(|(provider, model)| {
            let setup = joined.session.setup();
            let chosen = host.choose_model(&setup, provider, &model)?;
            chosen.context("there is no such provider")
        });
        match chosen {
            Ok((setup, model)) => {
                let change = Change::Model {
                    name: model.id.clone(),
                    window: setup.traits.window,
                };
                let says = format!("{}:{} is asked from here on.", model.provider, model.id);
                self.apply_setup(setup, change, &says);
                if let Some(joined) = &mut self.session {
                    joined.model = model;
                }
                self.is_model_chosen = true;
            }
            Err(error) => self.send_input(error_input(&format!("{error:#}"))),
        }
    }

    /// Retries by another policy from the next message on.
    pub(in crate::tui::driver) fn choose_policy(&self, name: &str) {
        let (Some(joined), Some(host)) = (&self.session, &self.host) else {
            return;
        };
        match host.choose_policy(&joined.session.setup(), name) {
            Ok(setup) => {
                let says = format!("From the next message on it is retried by `{name}`.");
                self.apply_setup(setup, Change::Policy(name.to_owned()), &says);
            }
            Err(error) => self.send_input(error_input(&format!("{error:#}"))),
        }
    }

    fn apply_setup(&self, setup: Setup, change: Change, says: &str) {
        if let Some(joined) = &self.session {
            joined.session.change_setup(setup);
            self.send_input(Input::Changed(change));
            self.notice(Tone::Faint, says);
        }
    }

    pub(in crate::tui::driver) fn show_accounts(&self) {
        let Some(host) = &self.host else {
            return;
        };
        self.send_input(match host.accounts() {
            Ok(table) => Input::Notice(Tone::Plain, table),
            Err(error) => error_input(&format!("{error:#}")),
        });
    }
}

/// The provider and the model that are meant, at a provider that is asked now.
fn resolve_model(name: &str, provider: &str) -> anyhow::Result<(&'static str, String)> {
    let place = ModelName::parse(name).map_err(anyhow::Error::msg)?;
    let provider = Provider::from_name(provider).context("the provider is not known")?;
    let place = place.resolve_for(provider);
    Ok((place.provider.name(), place.model))
}

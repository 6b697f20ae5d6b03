//! `outlast accounts`: lists the accounts, and why and until when one is blocked.

use crate::args::AccountsArguments;
use crate::config::{self, AccountSettings, KeyLocation, Provider, Settings};
use crate::factory::provider;
use crate::factory::shared_state;
use crate::output::{print, print_json};
use crate::platform::clock;
use crate::platform::exit::{Exit, UsageError};
use crate::platform::home;
use crate::platform::runtime;
use outlast_engine::Clock;
use outlast_gateway::control::Account;
use outlast_kernel::account::{Block, Blocks};
use outlast_kernel::time::Span;
use outlast_kernel::verdict::Authority;
use outlast_kernel::{Timestamp, text};
use serde_json::{Value, json};
use std::sync::Arc;

/// An account and its blocks.
struct Row {
    name: String,
    provider: Provider,
    key: String,
    blocks: Vec<Block>,
}

pub(crate) fn run(arguments: &AccountsArguments) -> anyhow::Result<Exit> {
    let settings = config::load(&arguments.flags.overrides())?;
    let clock: Arc<dyn Clock> = Arc::new(clock::clock()?);
    let (rows, now) = runtime::run_on_this_thread(async {
        let home = home::prepare()?;
        let knowledge = shared_state::open(Some(home), &clock).await;
        if let Some(name) = &arguments.unblock {
            knowledge
                .unblock(&resolve_account_name(&settings, name)?)
                .await;
        }
        let rows = rows(&settings, &knowledge.blocks());
        anyhow::Ok((rows, clock.now()))
    })?;
    if arguments.json {
        let rows: Value = rows.iter().map(|row| row.json(now)).collect();
        return print_json(&rows);
    }
    print(&lines(&rows, now))
}

/// Formats the configured accounts as a table, one line each.
pub(crate) fn table(settings: &Settings, blocks: &Blocks, now: Timestamp) -> String {
    lines(&rows(settings, blocks), now)
}

/// Returns the configured accounts in the form that a server sends.
pub(crate) fn account_statuses(
    settings: &Settings,
    blocks: &Blocks,
    now: Timestamp,
) -> Vec<Account> {
    let all = accounts(settings).into_iter();
    all.map(|(name, provider, _)| Account::new(&name, provider.name(), blocks, now))
        .collect()
}

fn lines(rows: &[Row], now: Timestamp) -> String {
    if rows.is_empty() {
        return "no accounts: set a key or an account in outlast.toml\n".to_owned();
    }
    let lines: String = rows.iter().map(|row| row.to_line(now)).collect();
    text::plain(&lines).into_owned()
}

/// Resolves a typed account name; the `@host` suffix of the name may be omitted.
fn resolve_account_name(settings: &Settings, typed: &str) -> Result<String, UsageError> {
    let names: Vec<String> = accounts(settings)
        .into_iter()
        .map(|(name, _, _)| name)
        .collect();
    let is_meant = |name: &&String| *name == typed || name.split('@').next() == Some(typed);
    if let Some(name) = names.iter().find(is_meant) {
        return Ok(name.clone());
    }
    let known = match names.is_empty() {
        true => "set one in outlast.toml".to_owned(),
        false => format!("there are: {}", names.join(", ")),
    };
    Err(UsageError(format!(
        "there is no account `{typed}`; {known}"
    )))
}

/// Returns all configured accounts, and the single key of the provider in use. Accounts of that provider carry the
/// host at which it is used.
fn accounts(settings: &Settings) -> Vec<(String, Provider, String)> {
    let in_use = provider::accounts(settings, None);
    let row = |account: &AccountSettings| {
        let of_use = in_use.iter().find(|other| {
            let name = other.name.split('@').next();
            name == Some(account.name.as_str()) && Some(account.provider) == settings.provider
        });
        let name = of_use.map_or(&account.name, |other| &other.name);
        (name.clone(), account.provider, account.key.to_string())
    };
    let mut rows: Vec<_> = settings.accounts.iter().map(row).collect();
    for account in &in_use {
        let (known, provider) = (
            rows.iter().any(|(name, _, _)| *name == account.name),
            settings.provider,
        );
        if let (false, Some(provider)) = (known, provider) {
            let variable = settings.api_key_variable.clone().map(KeyLocation::Variable);
            let key = variable.map_or_else(|| "settings".to_owned(), |from| from.to_string());
            rows.push((account.name.clone(), provider, key));
        }
    }
    rows
}

fn rows(settings: &Settings, blocks: &Blocks) -> Vec<Row> {
    let row = |(name, provider, key): (String, Provider, String)| {
        let own = blocks.iter().filter(|block| block.account == name);
        let blocks = own.cloned().collect();
        Row {
            name,
            provider,
            key,
            blocks,
        }
    };
    accounts(settings).into_iter().map(row).collect()
}

impl Row {
    fn active(&self, now: Timestamp) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(move |block| block.until > now)
    }

    fn to_line(&self, now: Timestamp) -> String {
        let (name, provider, key) = (&self.name, self.provider.name(), &self.key);
        let mut lines: Vec<String> = self
            .active(now)
            .map(|block| describe_block(block, now))
            .collect();
        if lines.is_empty() {
            lines.push("free".to_owned());
        }
        let state = lines.join("; ");
        format!("{name:<20}  {provider:<16}  {key:<28}  {state}\n")
    }

    fn json(&self, now: Timestamp) -> Value {
        let blocks: Vec<&Block> = self.active(now).collect();
        json!({
            "name": self.name, "provider": self.provider.name(), "key": self.key,
            "state": if blocks.is_empty() { "free" } else { "blocked" }, "blocks": blocks,
        })
    }
}

fn describe_block(block: &Block, now: Timestamp) -> String {
    let cause = block.cause.phrase();
    let model = match &block.model {
        Some(model) => format!(" for {model}"),
        None => String::new(),
    };
    let who = match block.authority {
        Authority::Stated => "the provider says",
        Authority::Reported => "the provider reports",
        Authority::Guessed => "a guess",
    };
    let left = Span(std::time::Duration::from_secs(
        block.until.since(now).as_secs(),
    ));
    format!(
        "{cause}{model}, next try in {left}, at {} ({who})",
        block.until
    )
}

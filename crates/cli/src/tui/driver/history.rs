//! What the journal knows of earlier sessions: what was said in them, what they left, and which can be gone on with.

use crate::commands::sessions::{first_words, status_word};
use crate::tui::chat::Input;
use crate::tui::choices::PastSession;
use crate::tui::driver::{Driver, Message, error_input};
use crate::tui::transcript::Tone;
use outlast_engine::journal::Entry;
use outlast_kernel::time::Span;
use outlast_kernel::{Timestamp, text};
use outlast_session::factory::Host;
use outlast_session::parse_entry;
use outlast_store::Journal;
use outlast_store::journal::{Availability, Page, Summary};
use std::time::Duration;

/// More sessions than these are found by `outlast sessions list`.
const MAX_LISTED_SESSIONS: usize = 100;

impl Driver {
    /// Looks for what was said here before, and for what was left unfinished.
    pub(in crate::tui::driver) fn load_history(&self) {
        let (Some(host), Some(joined)) = (self.host.clone(), &self.session) else {
            return;
        };
        let current = joined.session.id().to_owned();
        let sender = self.sender.clone();
        tokio::spawn(async move {
            let Some(journal) = host.journal() else {
                return;
            };
            // What cannot be read is missed by nobody here; `outlast sessions` says why.
            let folder = host.folder();
            let said = earlier_prompts(journal, &folder.to_string_lossy(), &current).await;
            let said = Input::HistoryLoaded(said.unwrap_or_default());
            sender.send(Message::Input(said)).ok();
            if let Some(says) = unfinished_notice(journal, &current).await {
                let notice = Input::Notice(Tone::Warning, says);
                sender.send(Message::Input(notice)).ok();
            }
        });
    }

    pub(in crate::tui::driver) fn list_sessions(&mut self) {
        let Some(host) = self.host.clone() else {
            return;
        };
        let current = self.session.as_ref();
        let current = current.map(|joined| joined.session.id().to_owned());
        let now = self.clock.now();
        self.spawn_task(async move {
            let current = current.unwrap_or_default();
            let listed = match host.journal() {
                Some(journal) => past_sessions(journal, &current, now).await,
                None => Ok(Vec::new()),
            };
            Some(match listed {
                Ok(sessions) => Input::SessionsListed(sessions),
                Err(error) => error_input(&error),
            })
        });
    }
}

/// What was said in the last sessions of a folder, the newest last.
async fn earlier_prompts(
    journal: &Journal,
    folder: &str,
    current: &str,
) -> anyhow::Result<Vec<String>> {
    const SESSIONS: usize = 10;
    let page = || Page {
        after: 0,
        limit: 50,
        kinds: Some(&["prompt"]),
    };
    let all = journal.sessions().await?;
    let here = all
        .iter()
        .filter(|it| it.directory == folder && it.id != current);
    let mut said = Vec::new();
    let newest: Vec<_> = here.take(SESSIONS).collect();
    for session in newest.into_iter().rev() {
        for stored in journal.read(&session.id, page()).await? {
            if let Ok(Entry::Prompt {
                message: Some(message),
                ..
            }) = parse_entry(&session.id, &stored)
            {
                said.push(message.text());
            }
        }
    }
    Ok(said)
}

/// What another process has left in the middle.
async fn unfinished_notice(journal: &Journal, current: &str) -> Option<String> {
    let unfinished = journal.unfinished().await.ok()?;
    let is_left = |it: &&Summary| it.availability != Availability::InUse && it.id != current;
    let left = unfinished.iter().filter(is_left).count();
    let turns = if left == 1 { "turn is" } else { "turns are" };
    (left > 0).then(|| format!("{left} earlier {turns} not finished: /sessions carries one on."))
}

/// What can be gone on with, the newest first.
async fn past_sessions(
    journal: &Journal,
    current: &str,
    now: Timestamp,
) -> anyhow::Result<Vec<PastSession>> {
    let mut sessions = Vec::new();
    let all = journal.sessions().await?.into_iter();
    let others =
        all.filter(|session| session.id != current && session.availability != Availability::InUse);
    for session in others.take(MAX_LISTED_SESSIONS) {
        let title = match session.title.is_empty() {
            true => first_words(journal, &session.id).await?,
            false => session.title.clone(),
        };
        let (standing, ago) = (status_word(&session, None), time_ago(session.changed, now));
        let about = format!("{standing}, {ago}, in {}", session.directory);
        sessions.push(PastSession {
            title: text::plain(&title).into_owned(),
            description: text::plain(&about).into_owned(),
            id: session.id,
        });
    }
    Ok(sessions)
}

/// How long ago that was, in the one unit that matters.
fn time_ago(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.since(then).as_secs();
    let unit = match seconds {
        0..60 => return "just now".to_owned(),
        60..3600 => 60,
        3600..86_400 => 3600,
        _ => 86_400,
    };
    format!("{} ago", Span(Duration::from_secs(seconds / unit * unit)))
}

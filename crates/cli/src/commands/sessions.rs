//! `outlast sessions`: list, show, export, compact and delete sessions.

use crate::args::{ExportFormat, SessionsCommand};
use crate::commands::compact;
use crate::commands::prompt::title;
use crate::config::duration;
use crate::factory::journal;
use crate::output::diagnostics::print_status;
use crate::output::spinner::Spinner;
use crate::output::{is_broken_pipe, print, print_json};
use crate::platform::clock;
use crate::platform::exit::{Exit, UsageError};
use crate::platform::runtime;
use outlast_engine::Clock;
use outlast_engine::journal::Entry;
use outlast_kernel::event::TurnStatus;
use outlast_kernel::text;
use outlast_session::parse_entry;
use outlast_session::transcript::{Format, Header, Writer};
use outlast_store::Journal;
use outlast_store::journal::{Availability, Page, Summary};
use serde_json::{Value, json};
use std::io::{BufWriter, Write};
use std::time::Duration;

const NO_SESSIONS: &str = "No sessions yet.";

/// The number of entries that are read at a time: a long session needs no memory.
const PAGE_SIZE: u32 = 500;

pub(crate) fn run(command: SessionsCommand) -> anyhow::Result<Exit> {
    // The argument is checked even if there is nothing to delete.
    if let SessionsCommand::Delete {
        older_than: Some(age),
        ..
    } = &command
    {
        parse_age(age)?;
    }
    let Some(journal) = journal::open_existing()? else {
        return report_no_sessions(&command);
    };
    let _working = spinner(&command);
    runtime::run_on_this_thread(async {
        match command {
            SessionsCommand::List { json } => list(&journal, json).await,
            SessionsCommand::Show { session } => write(&journal, session, Format::Plain).await,
            SessionsCommand::Export { session, format } => {
                write(&journal, session, format.into()).await
            }
            SessionsCommand::Compact { session, focus } => {
                compact::compact_session(&session, focus.as_deref()).await
            }
            SessionsCommand::Delete {
                sessions,
                older_than: None,
            } => delete(&journal, &sessions).await,
            SessionsCommand::Delete {
                older_than: Some(age),
                ..
            } => delete_older(&journal, &age).await,
        }
    })
}

/// Shows a spinner for slow commands; compaction reports its own progress.
fn spinner(command: &SessionsCommand) -> Option<Spinner> {
    match command {
        SessionsCommand::List { .. } => Some(Spinner::start("reading the sessions")),
        SessionsCommand::Show { .. } | SessionsCommand::Export { .. } => {
            Spinner::start_for_stream("reading the session")
        }
        SessionsCommand::Delete { .. } => {
            Some(Spinner::start("deleting, and making the file smaller"))
        }
        SessionsCommand::Compact { .. } => None,
    }
}

/// Responds to a command when there are no sessions at all.
fn report_no_sessions(command: &SessionsCommand) -> anyhow::Result<Exit> {
    match command {
        SessionsCommand::List { json: true } => print("[]\n"),
        SessionsCommand::List { json: false }
        | SessionsCommand::Delete {
            older_than: Some(_),
            ..
        } => {
            print_status(NO_SESSIONS);
            Ok(Exit::Success)
        }
        _ => Err(UsageError(journal::NO_SESSION.to_owned()).into()),
    }
}

impl From<ExportFormat> for Format {
    fn from(format: ExportFormat) -> Self {
        match format {
            ExportFormat::Jsonl => Self::Jsonl,
            ExportFormat::Markdown => Self::Markdown,
            ExportFormat::Html => Self::Html,
        }
    }
}

async fn list(journal: &Journal, json: bool) -> anyhow::Result<Exit> {
    let mut sessions = Vec::new();
    for mut session in journal.sessions().await? {
        if session.title.is_empty() {
            session.title = first_words(journal, &session.id).await?;
        }
        let last = journal.last_of_kind(&session.id, "settled").await?;
        let seal = last.and_then(|last| match parse_entry(&session.id, &last) {
            Ok(Entry::Settled { seal, .. }) => Some(seal),
            _ => None,
        });
        sessions.push((session, seal));
    }
    if json {
        let rows: Value = sessions.iter().map(row).collect();
        return print_json(&rows);
    }
    if sessions.is_empty() {
        print_status(NO_SESSIONS);
        return Ok(Exit::Success);
    }
    let lines: String = sessions.iter().map(line).collect();
    print(&text::plain(&lines))
}

/// Returns the first prompt of a session as its title, for a session without one.
pub(crate) async fn first_words(journal: &Journal, session: &str) -> anyhow::Result<String> {
    let page = Page {
        after: 0,
        limit: 1,
        kinds: Some(&["prompt"]),
    };
    let first = journal.read(session, page).await?;
    let first = first
        .first()
        .and_then(|first| parse_entry(session, first).ok());
    Ok(match first {
        Some(Entry::Prompt {
            message: Some(message),
            ..
        }) => title(&message.text()),
        _ => String::new(),
    })
}

/// Returns the status of a session in one word.
pub(crate) const fn status_word(session: &Summary, seal: Option<TurnStatus>) -> &'static str {
    match (session.availability, session.open_turn) {
        (Availability::InUse, _) => "in use",
        (_, Some(_)) => "unfinished",
        (Availability::Abandoned, None) if session.turns > 0 => "undelivered",
        (Availability::Abandoned, None) => "empty",
        (Availability::Free, None) => match seal {
            Some(TurnStatus::Error) => "failed",
            Some(TurnStatus::Aborted) => "cancelled",
            Some(TurnStatus::Completed) | None => "finished",
        },
    }
}

fn row((session, seal): &(Summary, Option<TurnStatus>)) -> Value {
    json!({
        "id": session.id, "state": status_word(session, *seal), "created": session.created,
        "changed": session.changed, "directory": session.directory, "title": session.title,
        "turns": session.turns, "entries": session.entries,
    })
}

fn line((session, seal): &(Summary, Option<TurnStatus>)) -> String {
    let Summary {
        id,
        changed,
        turns,
        title,
        ..
    } = session;
    let standing = status_word(session, *seal);
    format!("{id}  {changed}  {standing:<11}  {turns:>4}  {title}\n")
}

/// Writes the given session, or the newest one, as a document to stdout.
async fn write(journal: &Journal, id: Option<String>, format: Format) -> anyhow::Result<Exit> {
    let session = match id {
        Some(id) => journal::find(journal, &id).await?,
        None => {
            let newest = journal.sessions().await?.into_iter().next();
            newest.ok_or_else(|| UsageError(journal::NO_SESSION.to_owned()))?
        }
    };
    write_session(journal, &Header::from(&session), format).await
}

/// Writes the session with the given header as a document to stdout.
pub(crate) async fn write_session(
    journal: &Journal,
    head: &Header,
    format: Format,
) -> anyhow::Result<Exit> {
    let out = BufWriter::new(std::io::stdout().lock());
    match pages(journal, &head.id, Writer::new(format, head, out)).await {
        Err(error) if is_broken_pipe(&error) => Ok(Exit::Success),
        written => written.map(|()| Exit::Success),
    }
}

async fn pages<Out: Write>(
    journal: &Journal,
    session: &str,
    writer: std::io::Result<Writer<Out>>,
) -> anyhow::Result<()> {
    let mut writer = writer?;
    let mut after = 0;
    loop {
        let page = Page {
            after,
            limit: PAGE_SIZE,
            kinds: None,
        };
        let entries = journal.read(session, page).await?;
        let Some(last) = entries.last() else {
            writer.finish()?.flush()?;
            return Ok(());
        };
        after = last.seq;
        for entry in &entries {
            writer.entry(entry)?;
        }
    }
}

async fn delete(journal: &Journal, sessions: &[String]) -> anyhow::Result<Exit> {
    // Look all of them up before the first one is deleted.
    let mut found = Vec::new();
    for id in sessions {
        found.push(journal::find(journal, id).await?);
    }
    for session in found {
        journal.delete(&session.id).await?;
        print_status(&format!("Deleted {}.", session.id));
    }
    journal.purge_deleted().await?;
    Ok(Exit::Success)
}

/// Parses the typed age.
pub(crate) fn parse_age(typed: &str) -> Result<Duration, UsageError> {
    let age = duration::parse(typed);
    age.ok_or_else(|| {
        UsageError(format!(
            "--older-than: `{typed}` is no duration; try 30d or 12h"
        ))
    })
}

async fn delete_older(journal: &Journal, age: &str) -> anyhow::Result<Exit> {
    let age = parse_age(age)?;
    let now = clock::clock()?.now();
    let is_old = |session: &&Summary| {
        let is_over = session.open_turn.is_none() && session.availability == Availability::Free;
        is_over && now.since(session.changed) > age
    };
    let sessions = journal.sessions().await?;
    let old: Vec<&Summary> = sessions.iter().filter(is_old).collect();
    for session in &old {
        journal.delete(&session.id).await?;
    }
    journal.purge_deleted().await?;
    print_status(&format!("Deleted {}.", old.len()));
    Ok(Exit::Success)
}

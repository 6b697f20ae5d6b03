//! `outlast -p`: ask once, print the answer.
//!
//! Invariant: stdout carries the answer (or, with `--json`, the events) and nothing else. The answer is printed when it
//! is whole.

use crate::args::PromptArguments;
use crate::commands::compact;
use crate::config;
use crate::factory::image;
use crate::factory::journal;
use crate::factory::journal::EarlierSessions;
use crate::factory::options::Options;
use crate::factory::provider::DEFAULT_SCRIPT;
use crate::factory::session::{Attendance, SessionParts};
use crate::factory::session_lookup::{ExistingSession, current_folder};
use crate::factory::shared_state;
use crate::output::approval::TerminalApprover;
use crate::output::diagnostics::print_status;
use crate::output::screen::Screen;
use crate::output::watcher::{WatchContext, watch_turn};
use crate::platform::clock;
use crate::platform::exit::{Exit, UsageError};
use crate::platform::home;
use crate::platform::runtime;
use crate::platform::signals;
use crate::print_diagnostic;
use anyhow::Context;
use outlast_dialect::{Message, Part, Role};
use outlast_engine::Clock;
use outlast_kernel::text;
use outlast_session::Session;
use outlast_session::{PromptRequest, Setup};
use outlast_store::Journal;
use outlast_store::journal::{Availability, Summary};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAX_PROMPT_BYTES: u64 = 16 << 20;

pub(crate) fn run(arguments: &PromptArguments) -> anyhow::Result<Exit> {
    let prompt = arguments.prompt.as_deref();
    if prompt.is_some_and(compact::is_compact_command) {
        return compact::run_prompt(arguments);
    }
    let clock: Arc<dyn Clock> = Arc::new(clock::clock()?);
    runtime::run(async {
        let choice = &arguments.session_arguments;
        let asking = match choice.continue_last || choice.session.is_some() {
            true => PromptRun::for_existing_session(arguments, clock).await?,
            false => PromptRun::for_new_session(arguments, clock).await?,
        };
        Box::pin(asking.run(arguments)).await
    })
}

/// A prompt, and the session that it is for.
struct PromptRun {
    options: Options,
    parts: SessionParts,
    message: Message,
    folder: PathBuf,
    home: Option<PathBuf>,
    clock: Arc<dyn Clock>,
    storage: SessionStorage,
}

/// Where the session is written down.
enum SessionStorage {
    /// Nowhere, as it was asked for.
    Disabled,
    /// Nowhere, because it cannot be.
    Unavailable,
    New(Journal, EarlierSessions),
    Existing(Journal, Summary),
}

impl SessionStorage {
    /// For a new session.
    async fn new(home: &Path, arguments: &PromptArguments) -> Self {
        match journal::open(home) {
            Ok((journal, earlier)) => {
                report_unfinished(&journal, arguments).await;
                Self::New(journal, earlier)
            }
            Err(error) => warn_unrecorded(&error.to_string()),
        }
    }
}

impl PromptRun {
    fn options(arguments: &PromptArguments) -> Options {
        let mut options = Options::from_arguments(&arguments.session_arguments);
        options.whole = arguments.no_stream;
        options
    }

    /// A prompt that begins a session. What is wrong with it is said before anything is made.
    async fn for_new_session(
        arguments: &PromptArguments,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let mut options = Self::options(arguments);
        let settings = config::load(&options.overrides())?;
        if settings.provider.is_none() && settings.model.is_none() && !arguments.json {
            print_status(&format!(
                "No provider is configured: using the scripted one (--provider mock --model {DEFAULT_SCRIPT})."
            ));
        }
        let parts = SessionParts::new(settings, &options, clock.clone())?;
        options.pin_model(&parts.settings, parts.model());
        let message = message(arguments)?;
        let home = home::prepare();
        let home = home.inspect_err(|error| print_diagnostic(&format!("warning: {error:#}")));
        let home = home.ok();
        let storage = match &home {
            // Not even looked at: a file that is damaged would be put aside for nothing.
            _ if arguments.session_arguments.no_session => SessionStorage::Disabled,
            Some(home) => SessionStorage::new(home, arguments).await,
            None => warn_unrecorded("there is no folder to keep it in"),
        };
        Ok(Self {
            options,
            parts,
            message,
            // In a folder that was removed there is nothing to work on, but much to be asked.
            folder: current_folder().unwrap_or_default(),
            home,
            clock,
            storage,
        })
    }

    /// A prompt for a session that is there.
    async fn for_existing_session(
        arguments: &PromptArguments,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let typed = Self::options(arguments);
        let known = ExistingSession::find(
            arguments.session_arguments.session.as_deref(),
            typed,
            &clock,
        )
        .await?;
        Ok(Self {
            options: known.options,
            parts: known.parts,
            message: message(arguments)?,
            folder: known.folder,
            home: Some(home::prepare()?),
            clock,
            storage: SessionStorage::Existing(known.journal, known.summary),
        })
    }

    async fn run(self, arguments: &PromptArguments) -> anyhow::Result<Exit> {
        let policy = self.parts.settings.retry.policy.clone();
        let flags = &arguments.session_arguments.flags;
        let is_chosen = flags.model.is_some() || flags.provider.is_some();
        let ask = PromptRequest {
            model_chosen: is_chosen && matches!(self.storage, SessionStorage::Existing(..)),
            limits: self.parts.limits(),
            options: serde_json::to_value(&self.options)?,
            message: Some(self.message.clone()),
            ..PromptRequest::default()
        };
        let shared = self.home.filter(|_| self.parts.is_shared());
        let knowledge = shared_state::open(shared, &self.clock).await;
        let attended = !arguments.json && arguments.prompt.as_deref() != Some("-");
        let attendance = match attended && TerminalApprover::is_attended() {
            true => Attendance::Attended(Arc::new(TerminalApprover)),
            false => Attendance::Unattended,
        };
        let mut signals = signals::signals();
        let hooks = self.parts.hooks(&self.folder);
        let folder = self.folder.as_path();
        let setup = tokio::select! {
            setup = self.parts.setup(&self.options, &knowledge, folder, attendance) => setup,
            signal = signals.next() => return Ok(Exit::Signalled(signal)),
        };
        let is_wanted = !matches!(self.storage, SessionStorage::Disabled);
        let lost_some = matches!(
            self.storage,
            SessionStorage::New(_, EarlierSessions::Damaged)
        );
        let session = open_session(self.storage, &self.folder, &self.message, setup).await?;
        let is_refused = is_wanted && !session.is_persistent();
        let watching = WatchContext {
            screen: Screen::new(arguments.json),
            signals,
            hooks,
        };
        let turn = session.prompt(ask);
        let followed = watch_turn(&session, turn, watching).await?;
        Ok(match followed.finish(session, &policy).await? {
            Exit::Success if is_refused || lost_some => Exit::Unrecorded,
            exit => exit,
        })
    }
}

async fn open_session(
    place: SessionStorage,
    folder: &Path,
    message: &Message,
    setup: Setup,
) -> anyhow::Result<Session> {
    let session = match place {
        SessionStorage::Disabled | SessionStorage::Unavailable => {
            return Ok(Session::in_memory(setup));
        }
        SessionStorage::Existing(journal, summary) => {
            Session::open(&journal, &summary.id, setup).await?
        }
        SessionStorage::New(journal, _) => {
            let folder = folder.to_string_lossy();
            let title = title(&message.text());
            let begun = Session::create(&journal, (&folder, &title), setup.clone()).await;
            match begun {
                Ok(session) => session,
                Err(error) => {
                    warn_unrecorded(&error.to_string());
                    Session::in_memory(setup)
                }
            }
        }
    };
    Ok(session)
}

fn warn_unrecorded(why: &str) -> SessionStorage {
    print_diagnostic(&format!(
        "warning: this session cannot be written down, and could not be carried on after a crash: {why}"
    ));
    SessionStorage::Unavailable
}

/// What an earlier process left is only said here; carrying it on is another command.
async fn report_unfinished(journal: &Journal, arguments: &PromptArguments) {
    let unfinished = journal.unfinished().await.unwrap_or_default();
    let left = unfinished
        .iter()
        .filter(|session| session.availability != Availability::InUse)
        .count();
    if left > 0 && !arguments.json {
        let turns = if left == 1 { "turn is" } else { "turns are" };
        print_status(&format!(
            "{left} earlier {turns} not finished: `outlast resume` carries on."
        ));
    }
}

/// The first line of what was said.
pub(crate) fn title(prompt: &str) -> String {
    const MAX_LENGTH: usize = 80;
    let line = prompt.lines().find(|line| !line.trim().is_empty());
    let line = text::plain(line.unwrap_or_default().trim()).into_owned();
    text::bounded(&line, MAX_LENGTH).into_owned()
}

fn message(arguments: &PromptArguments) -> anyhow::Result<Message> {
    let text = read_prompt(arguments.prompt.as_deref().unwrap_or_default())?;
    // Providers refuse it; a script that made it by mistake should not have to pay for that.
    if text.trim().is_empty() && arguments.image.is_empty() {
        return Err(UsageError(
            "the prompt is empty; say what is asked, or `-p -` reads it from stdin".to_owned(),
        )
        .into());
    }
    let mut parts = vec![Part::Text { text }];
    for path in &arguments.image {
        parts.push(Part::Image(image::read(path)?));
    }
    let role = Role::User;
    Ok(Message { role, parts })
}

fn read_prompt(argument: &str) -> anyhow::Result<String> {
    if argument != "-" {
        return Ok(argument.to_owned());
    }
    let mut prompt = String::new();
    let read = std::io::stdin()
        .take(MAX_PROMPT_BYTES + 1)
        .read_to_string(&mut prompt);
    read.context("cannot read the prompt from stdin; it must be UTF-8 text")?;
    if prompt.len() as u64 > MAX_PROMPT_BYTES {
        return Err(UsageError(format!(
            "the prompt on stdin is longer than {} MiB",
            MAX_PROMPT_BYTES >> 20
        ))
        .into());
    }
    Ok(prompt)
}

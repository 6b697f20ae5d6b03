//! The session factory of a server: each session gets a host of its own.

use crate::args::SessionArguments;
use crate::commands::resume;
use crate::factory::options::Options;
use crate::factory::session::Attendance;
use crate::factory::session_host::SessionHost;
use crate::platform::exit::UsageError;
use crate::platform::signals::{Signal, Signals};
use crate::print_diagnostic;
use futures_util::future::join_all;
use outlast_engine::{BoxFuture, Clock};
use outlast_kernel::{Timestamp, text};
use outlast_session as session;
use outlast_session::factory::{
    FactoryError, HostedSession, SessionDescription, SessionFactory, SessionOptions,
};
use outlast_store::Journal;
use outlast_store::journal::Summary;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(in crate::commands::serve) struct ServeSessionFactory {
    /// The host with the shared parts; it has no session of its own.
    shared_host: SessionHost,
    clock: Arc<dyn Clock>,
    folder: PathBuf,
    /// The hosts whose hooks may still run.
    hosts: Mutex<Vec<Arc<SessionHost>>>,
}

impl ServeSessionFactory {
    pub(in crate::commands::serve) async fn new(
        choice: &SessionArguments,
        clock: Arc<dyn Clock>,
        folder: PathBuf,
    ) -> anyhow::Result<Self> {
        let attendance = Attendance::Unattended;
        Ok(Self {
            shared_host: SessionHost::new(choice, Arc::clone(&clock), attendance).await?,
            clock,
            folder,
            hosts: Mutex::default(),
        })
    }

    /// Checks that a session can be begun with the present settings. If options for sessions were typed, an error is fatal;
    /// otherwise it is a warning, as the settings in files may be meant for others than this server.
    pub(in crate::commands::serve) fn check(&self) -> anyhow::Result<()> {
        let host = self.host(&SessionOptions::default());
        match host.describe(&self.folder, None) {
            Err(error) if *self.shared_host.typed() != Options::default() => Err(error),
            Err(error) => {
                let why = crate::platform::exit::error_chain(&error);
                print_diagnostic(&format!("warning: no session can be begun: {why}"));
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    /// Adds a host. Hosts whose sessions are closed finish their hooks and are dropped.
    fn track_host(&self, host: Arc<SessionHost>) {
        let mut hosts = self.hosts.lock();
        let left = hosts.extract_if(.., |host| Arc::strong_count(host) == 1);
        for host in left.collect::<Vec<_>>() {
            tokio::spawn(async move { host.finish_hooks().await });
        }
        hosts.push(host);
    }

    /// Tells all hosts the signal that ends the process.
    pub(in crate::commands::serve) fn set_signal(&self, signal: Signal) {
        for host in &*self.hosts.lock() {
            host.set_signal(signal);
        }
    }

    /// Waits for hooks to finish, for a bounded time.
    pub(in crate::commands::serve) async fn finish(&self, signals: &Signals) {
        let hosts = self.hosts.lock().clone();
        join_all(hosts.iter().map(|host| host.finish(signals))).await;
    }

    /// Returns a host for a session with the given options.
    fn host(&self, wishes: &SessionOptions) -> SessionHost {
        let said = [
            ("provider", wishes.provider.clone()),
            ("model", wishes.model.clone()),
            ("retry.policy", wishes.policy.clone()),
            ("after_content", wishes.after_content.clone()),
        ];
        self.shared_host.for_session(&Options::from_settings(said))
    }

    /// Returns the folder of a session: the one in which it began, else the requested one.
    fn folder_of(
        &self,
        known: Option<&Summary>,
        wishes: &SessionOptions,
    ) -> Result<PathBuf, FactoryError> {
        let folder = match (known, &wishes.folder) {
            (Some(known), _) => PathBuf::from(&known.directory),
            (None, Some(wished)) => self.folder.join(wished),
            (None, None) => self.folder.clone(),
        };
        // A session may have no folder; then its models have no tools.
        if folder.as_os_str().is_empty() || folder.is_dir() {
            return Ok(folder);
        }
        let shown = text::plain(&folder.to_string_lossy()).into_owned();
        Err(FactoryError::Invalid(format!("there is no folder {shown}")))
    }

    async fn find_session(&self, name: &str) -> Result<Option<(Summary, Options)>, FactoryError> {
        let failed = |error: &dyn std::fmt::Display| FactoryError::Failed(error.to_string());
        let Some(journal) = self.shared_host.journal() else {
            return Ok(None);
        };
        let summary = match journal.summary(name).await {
            Ok(summary) if summary.id == name => summary,
            Ok(_) | Err(outlast_store::Error::NoSuchSession { .. }) => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        let earlier = resume::last_options(journal, name).await;
        let earlier = earlier.map_err(|error| failed(&error))?;
        Ok(Some((summary, earlier)))
    }

    async fn describe_session(
        &self,
        name: Option<&str>,
        wishes: &SessionOptions,
    ) -> Result<SessionDescription, FactoryError> {
        let known = match name {
            Some(name) => self.find_session(name).await?,
            None => None,
        };
        let (summary, earlier) = known.unzip();
        let host = self.host(wishes);
        // A description does not need the session's folder to exist.
        let folder = match &summary {
            Some(summary) => PathBuf::from(&summary.directory),
            None => self.folder_of(None, wishes)?,
        };
        match (host.describe(&folder, earlier.clone()), earlier) {
            // The history stays readable with any settings.
            (Err(error), Some(earlier)) => {
                Ok(host.describe_unavailable(earlier, settings_error(&error).to_string()))
            }
            (looked, _) => looked.map_err(|error| settings_error(&error)),
        }
    }

    async fn open_session(
        &self,
        name: &str,
        wishes: &SessionOptions,
    ) -> Result<HostedSession, FactoryError> {
        let known = self.find_session(name).await?;
        let host = Arc::new(self.host(wishes));
        let folder = self.folder_of(known.as_ref().map(|(known, _)| known), wishes)?;
        let opened = match known {
            Some(_) => host.reopen(name).await,
            None => {
                let title = wishes.title.as_deref().unwrap_or_default();
                host.begin_named(&folder, (name, title)).await
            }
        };
        let opened = opened.map_err(|error| open_error(name, &error))?;
        self.track_host(Arc::clone(&host));
        Ok(HostedSession { opened, host })
    }

    pub(in crate::commands::serve) fn shared_host(&self) -> &SessionHost {
        &self.shared_host
    }

    pub(in crate::commands::serve) fn working_folder(&self) -> &Path {
        &self.folder
    }

    pub(in crate::commands::serve) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// Converts a settings error for a client: it has typed no flag, so the flag's name is left out.
fn settings_error(error: &anyhow::Error) -> FactoryError {
    let reason = crate::platform::exit::error_chain(error);
    let flag = reason.strip_prefix("flag --");
    let named = flag.and_then(|flag| flag.split_once(": "));
    let said = named.map(|(_, said)| said.to_owned());
    FactoryError::Invalid(said.unwrap_or(reason))
}

/// Converts an error of opening a session.
fn open_error(name: &str, error: &anyhow::Error) -> FactoryError {
    let name = name.to_owned();
    let store = match error.downcast_ref::<session::Error>() {
        Some(session::Error::Store(error)) => Some(error),
        _ => error.downcast_ref::<outlast_store::Error>(),
    };
    match store {
        Some(outlast_store::Error::InUse { .. }) => FactoryError::InUse { name },
        Some(outlast_store::Error::NoSuchSession { .. }) => FactoryError::NotFound { name },
        Some(error) => FactoryError::Failed(error.to_string()),
        None if error.is::<UsageError>() => settings_error(error),
        None => FactoryError::Failed(crate::platform::exit::error_chain(error)),
    }
}

impl SessionFactory for ServeSessionFactory {
    fn journal(&self) -> Option<&Journal> {
        self.shared_host.journal()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    fn folder(&self) -> PathBuf {
        self.folder.clone()
    }

    fn describe<'a>(
        &'a self,
        name: Option<&'a str>,
        wishes: &'a SessionOptions,
    ) -> BoxFuture<'a, Result<SessionDescription, FactoryError>> {
        Box::pin(self.describe_session(name, wishes))
    }

    fn open<'a>(
        &'a self,
        name: &'a str,
        wishes: &'a SessionOptions,
    ) -> BoxFuture<'a, Result<HostedSession, FactoryError>> {
        Box::pin(self.open_session(name, wishes))
    }
}

//! The files of pipeline runs in our folder.

use crate::print_diagnostic;
use outlast_engine::Clock;
use outlast_pipeline::host::{Host, RunResources};
use outlast_pipeline::run_store::mailbox::Mailbox;
use outlast_pipeline::run_store::{ARTIFACTS, MAIL, RUNS, SCRATCH, STEPS};
use outlast_store::Journal;
use outlast_store::artifacts::Artifacts;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) struct Files {
    pub(crate) runs: Journal,
    sessions: Journal,
    artifacts: Artifacts,
    mailbox: Mailbox,
    scratch: PathBuf,
}

impl Files {
    pub(crate) fn open(home: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            runs: journal(home, RUNS)?,
            sessions: journal(home, STEPS)?,
            artifacts: Artifacts::open(&home.join(ARTIFACTS))?,
            mailbox: Mailbox::new(&home.join(MAIL)),
            scratch: home.join(SCRATCH),
        })
    }

    pub(crate) fn means(self, host: Arc<dyn Host>, clock: Arc<dyn Clock>) -> RunResources {
        RunResources {
            runs: self.runs,
            sessions: self.sessions,
            artifacts: Arc::new(self.artifacts),
            mailbox: Arc::new(self.mailbox),
            scratch: self.scratch,
            host,
            clock,
        }
    }
}

fn journal(home: &Path, name: &str) -> anyhow::Result<Journal> {
    let opened = Journal::open(&home.join(name))?;
    if let Some(aside) = opened.replaced {
        print_diagnostic(&format!(
            "warning: {name} is damaged; it is kept as {}, and a new file is begun",
            aside.display()
        ));
    }
    Ok(opened.journal)
}

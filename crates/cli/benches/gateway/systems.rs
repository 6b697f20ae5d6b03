//! The systems under comparison, and how each is started.
//!
//! Each has a core of its own and as many workers as suit it: one.

use crate::answers::Dialect;
use crate::load::{Fidelity, Load, RequestKind};
use crate::process::Process;
use anyhow::{Context, Result, bail};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Limit for the start of a system: some need half a minute.
const START_TIMEOUT: Duration = Duration::from_secs(180);

/// A system that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Direct,
    Nginx,
    Outlast,
    LiteLlm,
    Portkey,
    TensorZero,
}

impl Name {
    pub(crate) const ALL: [Self; 6] = [
        Self::Direct,
        Self::Nginx,
        Self::Outlast,
        Self::LiteLlm,
        Self::Portkey,
        Self::TensorZero,
    ];

    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx",
            Self::Outlast => "outlast",
            Self::LiteLlm => "litellm",
            Self::Portkey => "portkey",
            Self::TensorZero => "tensorzero",
        }
    }

    /// Whether it passes requests on unchanged, in every dialect.
    pub(crate) const fn passes_through(self) -> bool {
        matches!(self, Self::Direct | Self::Nginx | Self::Outlast)
    }
}

/// The paths and the core of a measurement.
pub(crate) struct Setup {
    /// The folder for files of the measurement.
    pub(crate) folder: PathBuf,
    /// The folder in which other gateways are installed.
    pub(crate) peers: PathBuf,
    pub(crate) outlast: PathBuf,
    pub(crate) upstream: SocketAddr,
    /// The core for the system under test.
    pub(crate) core: Option<usize>,
}

/// A running system.
pub(crate) struct System {
    pub(crate) name: Name,
    pub(crate) process: Option<Process>,
    address: SocketAddr,
    /// The prefix of its paths.
    prefix: &'static str,
    model: &'static str,
    headers: String,
}

impl System {
    pub(crate) async fn start(name: Name, places: &Setup) -> Result<Self> {
        let address = free_address()?;
        let mut system = Self {
            name,
            process: None,
            address,
            prefix: "",
            model: "",
            headers: String::new(),
        };
        let Some(command) = system.prepare(places)? else {
            system.address = places.upstream;
            return Ok(system);
        };
        let log = places.folder.join(format!("{}.log", name.text()));
        system.process = Some(Process::start(pinned(command, places.core), &log)?);
        system
            .wait_until_ready(&log)
            .await
            .with_context(|| format!("{} does not start; see {}", name.text(), log.display()))?;
        Ok(system)
    }

    /// Creates a load of one kind.
    pub(crate) fn load(&self, question: RequestKind, connections: usize, length: Duration) -> Load {
        Load {
            target: self.address,
            question,
            fidelity: match self.name.passes_through() {
                true => Fidelity::EveryByte,
                false => Fidelity::Words,
            },
            connections,
            length,
            path: format!("{}{}", self.prefix, question.dialect.path()),
            model: match self.model {
                "" => question.dialect.model(),
                model => model,
            },
            headers: self.headers.clone(),
        }
    }

    /// Returns the command that starts it; `None` for the provider, which is already running.
    fn prepare(&mut self, places: &Setup) -> Result<Option<Command>> {
        let (listen, upstream) = (self.address.to_string(), places.upstream.to_string());
        let file = |name: &str, text: &str| -> Result<PathBuf> {
            let text = text
                .replace("FOLDER", &places.folder.display().to_string())
                .replace("UPSTREAM", &upstream)
                .replace("LISTEN", &listen);
            let path = places.folder.join(name);
            fs::write(&path, text)?;
            Ok(path)
        };
        let port = self.address.port().to_string();
        let command = match self.name {
            Name::Direct => return Ok(None),
            Name::Nginx => {
                let mut command = Command::new("nginx");
                command.arg("-c");
                command.arg(file("nginx.conf", include_str!("peers/nginx.conf"))?);
                command
            }
            Name::Outlast => outlast(places, &listen),
            Name::LiteLlm => {
                let config = file("litellm.yaml", include_str!("peers/litellm.yaml"))?;
                let mut command = Command::new(places.peers.join("litellm/bin/litellm"));
                command.args(["--num_workers", "1", "--host", "127.0.0.1", "--port", &port]);
                command.arg("--config").arg(config);
                command
            }
            Name::Portkey => {
                self.headers = format!(
                    "x-portkey-provider: openai\r\nx-portkey-custom-host: http://{upstream}/v1\r\n"
                );
                let preload = file("portkey.mjs", include_str!("peers/portkey.mjs"))?;
                let server = "portkey/node_modules/@portkey-ai/gateway/build/start-server.js";
                let mut command = Command::new("node");
                command.arg("--import").arg(preload);
                command.arg(places.peers.join(server));
                command.args(["--headless", &format!("--port={port}")]);
                command
            }
            Name::TensorZero => {
                self.prefix = "/openai";
                self.model = "tensorzero::model_name::gpt-bench";
                let config = file("tensorzero.toml", include_str!("peers/tensorzero.toml"))?;
                let mut command = Command::new(places.peers.join("tensorzero/bin/python"));
                let script = include_str!("peers/start_tensorzero.py");
                command.arg(file("start_tensorzero.py", script)?);
                command.arg(config);
                command
            }
        };
        Ok(Some(command))
    }

    /// Waits until it has answered once.
    async fn wait_until_ready(&mut self, log: &Path) -> Result<()> {
        let question = RequestKind {
            dialect: Dialect::Chat,
            is_streamed: false,
        };
        let end = Instant::now() + START_TIMEOUT;
        loop {
            if self.process.as_mut().is_some_and(Process::has_ended) {
                bail!("it has ended");
            }
            if self.name == Name::TensorZero {
                self.address = said_address(log).unwrap_or(self.address);
            }
            match self.load(question, 1, Duration::ZERO).run().await {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > end => return Err(error.into()),
                Err(_) => sleep(Duration::from_millis(200)).await,
            }
        }
    }
}

/// Creates the command for `outlast gateway` with only these settings.
pub(crate) fn outlast(places: &Setup, listen: &str) -> Command {
    let home = places.folder.join("outlast-home");
    let mut command = Command::new(&places.outlast);
    command
        .args(["gateway", "--listen", listen, "--upstream"])
        .arg(format!("http://{}", places.upstream))
        .current_dir(&places.folder)
        .env("HOME", &places.folder)
        .env("OUTLAST_HOME", home);
    command
}

/// Returns a free port.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn pinned(command: Command, core: Option<usize>) -> Command {
    let Some(core) = core else {
        return command;
    };
    let mut pinned = Command::new("taskset");
    pinned.args(["--cpu-list", &core.to_string()]);
    pinned.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => pinned.env(name, value),
            None => pinned.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        pinned.current_dir(folder);
    }
    pinned
}

/// Returns the address from the log of a system that chooses its port.
fn said_address(log: &Path) -> Option<SocketAddr> {
    let said = fs::read_to_string(log).ok()?;
    let (_, rest) = said.split_once("listening: http://")?;
    let address: String = rest
        .chars()
        .take_while(|c| !matches!(c, '/' | '\n'))
        .collect();
    let (_, port) = address.rsplit_once(':')?;
    format!("127.0.0.1:{port}").parse().ok()
}

//! The processes of a demo, this same program as the provider and as the agent, and their temporary folder.
//!
//! Invariants: no child and no folder outlives this, however it is dropped; no child sees the user's settings, keys or
//! proxies; a Ctrl-C of the terminal reaches only this process.

use anyhow::{Context, bail};
use futures_util::StreamExt;
use outlast_engine::Transport;
use outlast_engine::transport::{Http, HttpSettings, Method, Request as HttpRequest};
use outlast_kernel::Timestamp;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

/// The longest time that a child may take to start, answer or end.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(30);
/// The model of the agent, to which the provider's script belongs.
const MODEL: &str = "demo";
/// The environment variables that children inherit.
const INHERITED_VARIABLES: [&str; 5] = ["PATH", "TZ", "LANG", "LC_ALL", "SYSTEMROOT"];
/// The agent's home, and the folder in which its tools work.
const HOME: &str = "home";
const WORK: &str = "work";
/// Disables the timeouts of requests: in the fastest scene, five minutes are a few milliseconds, which a busy machine needs
/// for a response.
const NO_TIMEOUTS: &str = "[timeouts]\nheaders = 0\nfirst_event = 0\nidle = 0\n";

pub(super) struct Processes {
    folder: TempDir,
    program: PathBuf,
    provider: Option<(Child, String)>,
    agent: Option<Child>,
}

/// The output of an agent, line by line.
pub(super) struct AgentOutput {
    pub(super) stdout: Lines<BufReader<ChildStdout>>,
    pub(super) stderr: Lines<BufReader<ChildStderr>>,
}

/// A request in the provider's log.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Request {
    pub(super) time: Timestamp,
}

#[derive(Deserialize)]
struct RequestLog {
    requests: Vec<Request>,
    dropped: u64,
}

impl Processes {
    pub(super) fn new() -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let place = std::env::temp_dir();
        let folder = temporary_folder(&place).with_context(|| {
            format!(
                "cannot make a temporary folder in {}; set TMPDIR to a folder that you can write to",
                place.display()
            )
        })?;
        Ok(Self {
            folder,
            program,
            provider: None,
            agent: None,
        })
    }

    /// Returns the path of a file of the agent's tools.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(WORK).join(name)
    }

    /// Starts a provider with the given script, in place of the one before.
    pub(super) async fn start_provider(&mut self, script: &str, speed: u32) -> anyhow::Result<()> {
        self.stop().await?;
        let script = format!("{MODEL}={script}");
        let mut command = self.command(speed);
        command
            .args(["mock", "--listen", "127.0.0.1:0", "--until-stdin-ends"])
            .args(["--script", &script])
            // It ends when we do, even if we are killed.
            .stdin(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command
            .spawn()
            .context("cannot start the scripted provider")?;
        let stdout = child.stdout.take().context("the provider has no stdout")?;
        self.provider = Some((child, String::new()));
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(PROCESS_TIMEOUT, lines.next_line()).await;
        let line = line.context("the scripted provider does not start")??;
        let url = line
            .as_deref()
            .and_then(|line| line.strip_prefix("listening on "));
        let Some((url, (_, own))) = url.zip(self.provider.as_mut()) else {
            bail!("the scripted provider does not start");
        };
        url.clone_into(own);
        Ok(())
    }

    /// Starts an agent with a prompt for the provider.
    pub(super) fn prompt_agent(
        &mut self,
        typed: &[&str],
        speed: u32,
    ) -> anyhow::Result<AgentOutput> {
        let (_, url) = self.provider.as_ref().context("there is no provider")?;
        let mut command = self.command(speed);
        command
            .args(typed)
            .args(["--provider", "anthropic", "--model", MODEL])
            .args(["--base-url", url]);
        self.start_agent(command)
    }

    /// Starts another process that resumes the agent's turn.
    pub(super) fn resume_agent(&mut self, speed: u32) -> anyhow::Result<AgentOutput> {
        let mut command = self.command(speed);
        command.args(["resume", "--json"]);
        self.start_agent(command)
    }

    fn start_agent(&mut self, mut command: Command) -> anyhow::Result<AgentOutput> {
        let mut child = command
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start the agent")?;
        let says = child.stdout.take().zip(child.stderr.take());
        self.agent = Some(child);
        let (stdout, stderr) = says.context("the agent has no stdout")?;
        Ok(AgentOutput {
            stdout: BufReader::new(stdout).lines(),
            stderr: BufReader::new(stderr).lines(),
        })
    }

    fn command(&self, speed: u32) -> Command {
        let mut command = Command::new(&self.program);
        let passed_on = INHERITED_VARIABLES.map(|name| (name, std::env::var_os(name)));
        let passed_on = passed_on
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        command
            .current_dir(self.folder.path().join(WORK))
            .env_clear()
            .envs(passed_on)
            .env("HOME", self.folder.path())
            .env("TMPDIR", self.folder.path())
            .env("OUTLAST_HOME", self.folder.path().join(HOME))
            .env("OUTLAST_TIME_SCALE", speed.to_string())
            .env("ANTHROPIC_API_KEY", MODEL)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        command
    }

    /// Kills the agent as `kill -9` does.
    pub(super) async fn kill_agent(&mut self) -> anyhow::Result<()> {
        let Some(mut agent) = self.agent.take() else {
            bail!("there is no agent to kill");
        };
        agent.kill().await.context("cannot kill the agent")
    }

    /// Waits for the end of an agent whose output has ended.
    pub(super) async fn wait_for_agent(&mut self) -> anyhow::Result<ExitStatus> {
        let agent = self.agent.as_mut().context("there is no agent")?;
        let ended = tokio::time::timeout(PROCESS_TIMEOUT, agent.wait()).await;
        let ended = ended.context("the agent does not end")??;
        self.agent = None;
        Ok(ended)
    }

    /// Returns the requests that reached the provider, from its log.
    pub(super) async fn requests(&self) -> anyhow::Result<Vec<Request>> {
        let (_, url) = self.provider.as_ref().context("there is no provider")?;
        let asked = tokio::time::timeout(PROCESS_TIMEOUT, fetch_log(url)).await;
        let log: RequestLog = asked.context("the provider's log cannot be read")??;
        if log.dropped > 0 {
            bail!("the provider's log is not complete");
        }
        Ok(log.requests)
    }

    /// Ends every process.
    async fn stop(&mut self) -> anyhow::Result<()> {
        let provider = self.provider.take().map(|(child, _)| child);
        for mut child in self.agent.take().into_iter().chain(provider) {
            child.kill().await.context("cannot end a process")?;
        }
        Ok(())
    }

    /// Ends every process, and removes the folder.
    pub(super) async fn shut_down(mut self) -> anyhow::Result<()> {
        let stopped = self.stop().await;
        let folder = self.folder.path().display().to_string();
        let removed = self.folder.close();
        removed.with_context(|| format!("cannot remove {folder}; remove it by hand"))?;
        stopped
    }
}

/// Makes a folder, private to the user, with the agent's home and working folder.
fn temporary_folder(place: &Path) -> std::io::Result<TempDir> {
    // Programs that start in it must find it from anywhere.
    let place = std::path::absolute(place)?;
    let folder = tempfile::Builder::new()
        .prefix("outlast-demo-")
        .tempdir_in(place)?;
    for inner in [HOME, WORK] {
        std::fs::create_dir(folder.path().join(inner))?;
    }
    let settings = folder.path().join(HOME).join("outlast.toml");
    std::fs::write(settings, NO_TIMEOUTS)?;
    Ok(folder)
}

async fn fetch_log(url: &str) -> anyhow::Result<RequestLog> {
    let settings = HttpSettings {
        base_url: url.to_owned(),
        connect_timeout: PROCESS_TIMEOUT,
        ..HttpSettings::default()
    };
    let http = Http::new(&settings)?;
    let request = HttpRequest {
        method: Method::Get,
        path: "/_outlast/requests".to_owned(),
        headers: Vec::new(),
        body: String::new().into(),
    };
    let failed = |error: outlast_engine::transport::Error| anyhow::anyhow!(error.message);
    let mut response = http.send(request).await.map_err(failed)?;
    let mut body = Vec::new();
    while let Some(piece) = response.body.next().await {
        body.extend_from_slice(&piece.map_err(failed)?);
    }
    serde_json::from_slice(&body).context("the provider's log cannot be read")
}

//! Sources of keys: the environment, a file, a command. Keys are never arguments, and never shown.

use crate::config::KeyLocation;
use outlast_engine::BoxFuture;
use outlast_engine::accounts::KeySource;
use outlast_engine::credential::Credential;
use secrecy::{ExposeSecret, SecretString};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

const MAX_KEY_BYTES: u64 = 64 << 10;
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// A key from the settings.
pub(crate) struct FixedKey(pub(crate) SecretString);

impl KeySource for FixedKey {
    fn fetch(&self) -> BoxFuture<'_, Result<Credential, String>> {
        let key = Credential::new(self.0.expose_secret().to_owned());
        Box::pin(std::future::ready(Ok(key)))
    }
}

impl KeySource for KeyLocation {
    fn fetch(&self) -> BoxFuture<'_, Result<Credential, String>> {
        Box::pin(async move {
            let text = match self {
                Self::Variable(name) => {
                    std::env::var(name).map_err(|_| format!("the variable {name} is not set"))
                }
                Self::File(path) => read_file(path).await,
                Self::Command(command) => run_command(command).await,
            };
            match text?.trim() {
                "" => Err(format!("the {self} gives nothing")),
                key if key.bytes().all(|b| b.is_ascii_graphic()) => {
                    Ok(Credential::new(key.to_owned()))
                }
                _ => Err(format!("what the {self} gives is no key")),
            }
        })
    }
}

async fn read_file(path: &Path) -> Result<String, String> {
    let problem = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let file = tokio::fs::File::open(path).await.map_err(problem)?;
    let mut text = String::new();
    let mut file = file.take(MAX_KEY_BYTES);
    file.read_to_string(&mut text).await.map_err(problem)?;
    Ok(text)
}

/// Runs the command in a shell. Its stderr is not shown: it may hold secrets.
async fn run_command(command: &str) -> Result<String, String> {
    let mut shell = if cfg!(windows) {
        let mut shell = Command::new("cmd");
        shell.arg("/C");
        shell
    } else {
        let mut shell = Command::new("sh");
        shell.arg("-c");
        shell
    };
    let child = shell
        .arg(command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let mut child = child.map_err(|error| format!("the command cannot be run: {error}"))?;
    let Some(stdout) = child.stdout.take() else {
        return Err("the command cannot be read".to_owned());
    };
    let mut text = String::new();
    let run = async {
        let mut stdout = stdout.take(MAX_KEY_BYTES);
        stdout.read_to_string(&mut text).await?;
        // A command that writes more gets an error instead of waiting for a reader.
        drop(stdout);
        child.wait().await
    };
    match tokio::time::timeout(COMMAND_TIMEOUT, run).await {
        Ok(Ok(status)) if status.success() => Ok(text),
        Ok(Ok(status)) => Err(format!("the command failed ({status})")),
        Ok(Err(error)) => Err(format!("the command cannot be read: {error}")),
        Err(_) => Err(format!(
            "the command took longer than {} s",
            COMMAND_TIMEOUT.as_secs()
        )),
    }
}

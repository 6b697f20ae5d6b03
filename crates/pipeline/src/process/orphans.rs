//! Finds and ends the leftovers of an attempt whose process died, before the attempt is made again.
//!
//! Every command of an attempt carries marks in its environment (run, step, visit, attempt), and its children inherit
//! them, also those that started too late for their process id to be recorded. Invariant: afterwards nothing of the
//! attempt that can be found runs, unless the system needs longer than `MAX_KILL_ATTEMPTS` times `RETRY_INTERVAL`.
//! Systems that do not show environments only offer the recorded process id.

use crate::process;
use std::sync::Arc;
use std::time::Duration;

/// Interval between two kills or scans; the system gets `MAX_KILL_ATTEMPTS` times as long to remove killed processes.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);
const MAX_KILL_ATTEMPTS: usize = 400;
/// Maximum number of scans while some process is just executing another program.
const MAX_SCANS: usize = 40;

/// Ends the leftovers of an attempt: its recorded process, if any, and all processes that carry its marks.
pub(crate) async fn kill_orphans(known: Option<(u32, u64)>, marks: &[(String, String)]) {
    let mut marked = find_marked(marks).await;
    if let Some((process, born)) = known {
        process::kill_orphan(process, born);
        marked.extend(known);
    }
    for _ in 0..MAX_KILL_ATTEMPTS {
        marked.retain(|(process, born)| is_alive(*process, *born));
        if marked.is_empty() {
            // A process may have started another one in its last moment.
            marked = find_marked(marks).await;
        }
        if marked.is_empty() {
            return;
        }
        for (process, _) in &marked {
            kill(*process);
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

async fn find_marked(marks: &[(String, String)]) -> Vec<(u32, u64)> {
    let marks = marks.iter();
    let marks: Vec<String> = marks
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let marks = Arc::new(marks);
    let mut found = Vec::new();
    for _ in 0..MAX_SCANS {
        let marks = Arc::clone(&marks);
        let looked = tokio::task::spawn_blocking(move || system::marked(&marks)).await;
        let is_clear;
        (found, is_clear) = looked.unwrap_or_default();
        if is_clear || !found.is_empty() {
            break;
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
    found
}

/// Returns whether the process is the same one and still alive.
fn is_alive(process: u32, born: u64) -> bool {
    system::standing(process).is_some_and(|(state, of)| of == born && !matches!(state, 'Z' | 'X'))
}

#[cfg(unix)]
fn kill(process: u32) {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    if let Ok(process) = i32::try_from(process) {
        // The process may have ended by itself in the meantime.
        kill(Pid::from_raw(process), Signal::SIGKILL).ok();
    }
}

#[cfg(not(unix))]
fn kill(_: u32) {}

#[cfg(target_os = "linux")]
mod system {
    use std::fs;

    /// The system counts start times in hundredths of a second.
    const TICKS_PER_SECOND: u64 = 100;
    /// Age in seconds beyond which a process has finished executing its program.
    const MAX_EXEC_AGE_SECONDS: u64 = 5;

    /// Returns the processes whose environment contains all marks, with their start times, and whether the scan is
    /// conclusive for all processes.
    pub(crate) fn marked(marks: &[String]) -> (Vec<(u32, u64)>, bool) {
        let Ok(processes) = fs::read_dir("/proc") else {
            return (Vec::new(), true);
        };
        let names = processes.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let (mut found, mut is_clear) = (Vec::new(), true);
        for process in names.filter_map(|name| name.parse().ok()) {
            // Processes of other users cannot be read.
            let Ok(environment) = fs::read(format!("/proc/{process}/environ")) else {
                continue;
            };
            let variables = || environment.split(|byte| *byte == 0);
            let has = |mark: &String| variables().any(|variable| variable == mark.as_bytes());
            match environment.is_empty() {
                true => is_clear &= !may_be_executing(process),
                false if marks.iter().all(has) => {
                    found.extend(standing(process).map(|(_, born)| (process, born)));
                }
                false => {}
            }
        }
        (found, is_clear)
    }

    /// Returns whether a process without a visible environment may be about to execute a program: it is young, has
    /// memory, and lives.
    fn may_be_executing(process: u32) -> bool {
        let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
        let seconds = uptime.split('.').next().and_then(|text| text.parse().ok());
        let age = |born: u64| seconds.map(|now: u64| now.saturating_sub(born / TICKS_PER_SECOND));
        fields(process).is_some_and(|(state, born, memory)| {
            !matches!(state, 'Z' | 'X') && memory > 0 && age(born) < Some(MAX_EXEC_AGE_SECONDS)
        })
    }

    /// Returns the state letter and the start time of a process.
    pub(crate) fn standing(process: u32) -> Option<(char, u64)> {
        fields(process).map(|(state, born, _)| (state, born))
    }

    /// Returns the state letter, the start time and the memory size of a process.
    fn fields(process: u32) -> Option<(char, u64, u64)> {
        let stat = fs::read(format!("/proc/{process}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        // The name, which may hold any character, is the second field.
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let born = fields.nth(18)?.parse().ok()?;
        Some((state, born, fields.next()?.parse().ok()?))
    }
}

/// Other systems do not show environments.
#[cfg(not(target_os = "linux"))]
mod system {
    pub(crate) const fn marked(_: &[String]) -> (Vec<(u32, u64)>, bool) {
        (Vec::new(), true)
    }

    pub(crate) const fn standing(_: u32) -> Option<(char, u64)> {
        None
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    fn marks(attempt: &str) -> Vec<(String, String)> {
        let run = format!("leftover-{}", std::process::id());
        let marks = [("OUTLAST_RUN", run.as_str()), ("OUTLAST_ATTEMPT", attempt)];
        marks
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec()
    }

    fn start(attempt: &str) -> Child {
        // The scan must also find a process in a session of its own.
        let mut command = Command::new("sh");
        command.args(["-c", "setsid sleep 600 & wait"]);
        command.envs(marks(attempt)).stdin(Stdio::null());
        command.spawn().unwrap()
    }

    async fn count(attempt: &str) -> usize {
        find_marked(&marks(attempt)).await.len()
    }

    #[tokio::test]
    async fn only_processes_with_marks_of_attempt_are_killed() {
        let mut children = [start("1"), start("2")];
        while count("1").await < 2 || count("2").await < 2 {
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        kill_orphans(None, &marks("1")).await;
        assert_eq!((count("1").await, count("2").await), (0, 2));
        kill_orphans(None, &marks("2")).await;
        assert_eq!(count("2").await, 0);
        for child in &mut children {
            child.wait().unwrap();
        }
    }
}

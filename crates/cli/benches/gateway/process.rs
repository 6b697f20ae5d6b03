//! A process under measurement, and the resources of it and its children.
//!
//! Invariant: it does not outlive its measurement; its process group is killed as a whole.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The system counts time in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// A process that the benchmark started.
pub(crate) struct Process {
    child: Child,
}

/// The memory in use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    pub(crate) anonymous: u64,
}

impl Process {
    /// Starts a program, on one core if requested; its output goes to a file.
    pub(crate) fn start(mut command: Command, log: &Path) -> io::Result<Self> {
        let said = fs::File::create(log)?;
        command
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said)
            .process_group(0);
        Ok(Self {
            child: command.spawn()?,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the CPU time that it and its children have used so far.
    pub(crate) fn cpu(&self) -> Duration {
        self.all().into_iter().map(cpu).sum()
    }

    pub(crate) fn memory(&self) -> Memory {
        let mut memory = Memory::default();
        for process in self.all() {
            memory.resident += status(process, "VmRSS:");
            memory.anonymous += status(process, "RssAnon:");
        }
        memory
    }

    /// Returns its own peak memory.
    pub(crate) fn peak(&self) -> u64 {
        status(self.child.id(), "VmHWM:")
    }

    /// Returns the process, its children, and theirs.
    fn all(&self) -> Vec<u32> {
        let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter_map(|process| Some((process, fields(process)?.get(1)?.parse().ok()?)))
            .collect();
        let mut family = vec![self.child.id()];
        let mut at = 0;
        while at < family.len() {
            let children = parents.iter().filter(|(_, parent)| *parent == family[at]);
            let children: Vec<u32> = children.map(|(process, _)| *process).collect();
            family.extend(children);
            at += 1;
        }
        family
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Ok(group) = i32::try_from(self.child.id()) else {
            return;
        };
        // It may have ended by itself; otherwise it gets time to clean up.
        killpg(Pid::from_raw(group), Signal::SIGTERM).ok();
        for _ in 0..300 {
            if self.has_ended() {
                break;
            }
            std::thread::sleep(TICK);
        }
        killpg(Pid::from_raw(group), Signal::SIGKILL).ok();
        self.child.wait().ok();
    }
}

/// Returns the fields of a process after its name, which may contain anything.
fn fields(process: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    Some(rest.split(' ').map(str::to_owned).collect())
}

fn cpu(process: u32) -> Duration {
    let Some(fields) = fields(process) else {
        return Duration::ZERO;
    };
    let ticks = |at: usize| fields[at].parse::<u32>().unwrap_or_default();
    TICK * (ticks(11) + ticks(12))
}

fn status(process: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kilobytes.unwrap_or_default() << 10
}

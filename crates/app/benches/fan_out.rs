//! What a step of a pipeline costs us: a thousand of them beside each other, by a real process.
//!
//! Promises: at most `PROMPT_LIMIT` of our own time for each step that asks a model, `COMMAND_LIMIT` for each that runs a
//! command (whose own time does not count, but what the system takes for a copy of our process does, which is most of it),
//! and no more memory than `MEMORY_LIMIT` beyond what a run of ten steps takes. It fails when one is broken.
//! `cargo bench --package outlast-app --bench fan_out`
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it is a benchmark"
)]

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

/// What a process used is read where only Linux says it.
#[cfg(not(target_os = "linux"))]
fn main() {
    println!("the cost of a step is measured on Linux only");
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fmt::Write as _;
    use std::fs;
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::thread::sleep;
    use std::time::Duration;
    use tempfile::TempDir;

    const STEPS: u32 = 1000;
    const FEW_STEPS: u32 = 10;
    /// Of so many runs the best one counts.
    const RUNS: usize = 3;
    /// Where a sync costs nothing: what the machine does for its disk is not our own time, and depends on who else writes.
    const MEMORY_DISK: &str = "/dev/shm";
    const PROMPT_LIMIT: Duration = Duration::from_millis(1);
    const COMMAND_LIMIT: Duration = Duration::from_millis(5);
    const MEMORY_LIMIT: u64 = 64 << 20;
    /// The system counts time in hundredths of a second.
    const TICK: Duration = Duration::from_millis(10);
    /// How often the memory is looked at, which only grows.
    const LOOK: Duration = Duration::from_millis(5);

    const PROMPT: &str = "prompt: Say hello";
    const COMMAND: &str = "command: [\"true\"]";

    /// What a process used by itself.
    #[derive(Clone, Copy, Default)]
    struct Used {
        cpu: Duration,
        memory: u64,
    }

    pub(super) fn main() {
        let kinds = [
            ("prompt", PROMPT, PROMPT_LIMIT),
            ("command", COMMAND, COMMAND_LIMIT),
        ];
        let broken = kinds.map(is_broken).contains(&true);
        assert!(!broken, "a step costs more than it may");
    }

    fn is_broken((name, work, limit): (&str, &str, Duration)) -> bool {
        let memory_disk = Path::new(MEMORY_DISK);
        let place = match memory_disk.is_dir() {
            true => memory_disk.to_owned(),
            false => std::env::temp_dir(),
        };
        let few = run(&pipeline(FEW_STEPS, work), FEW_STEPS, &place);
        let best = |place: &Path| {
            let runs = (0..RUNS).map(|_| run(&pipeline(STEPS, work), STEPS, place));
            // What else the machine does only adds to what we use.
            runs.min_by_key(|run| run.cpu).unwrap()
        };
        let (many, on_disk) = (best(&place), best(&std::env::temp_dir()));
        let (each, each_on_disk) = (many.cpu / STEPS, on_disk.cpu / STEPS);
        let memory = many.memory.saturating_sub(few.memory);
        println!(
            "{STEPS} {name} steps: {each:?} of our own time each (at most {limit:?}; {each_on_disk:?} with the machine's work for its disk), {} KiB more memory than for \
             {FEW_STEPS} (at most {} KiB)",
            memory >> 10,
            MEMORY_LIMIT >> 10
        );
        each > limit || memory > MEMORY_LIMIT
    }

    /// Steps that need nothing of each other.
    fn pipeline(steps: u32, work: &str) -> String {
        let mut text = "provider: mock\nmodel: ok\nsteps:\n".to_owned();
        for step in 1..=steps {
            writeln!(text, "  - id: s{step}\n    {work}").unwrap();
        }
        text
    }

    fn run(pipeline: &str, steps: u32, place: &Path) -> Used {
        let folder = TempDir::new_in(place).unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("fan-out.yaml"), pipeline).unwrap();
        let (said, errors) = (path("said"), path("errors"));
        let mut child = Command::new(env!("CARGO_BIN_EXE_outlast"))
            .args(["run", "fan-out.yaml"])
            .current_dir(folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", folder.path())
            .env("OUTLAST_HOME", path("home"))
            .stdin(Stdio::null())
            .stdout(fs::File::create(said).unwrap())
            .stderr(fs::File::create(&errors).unwrap())
            .spawn()
            .unwrap();
        let process = format!("/proc/{}", child.id());
        let mut used = Used::default();
        loop {
            let memory = peak(Path::new(&process));
            used.memory = used.memory.max(memory);
            let (has_ended, cpu) = time(Path::new(&process));
            used.cpu = cpu;
            if has_ended {
                break;
            }
            sleep(LOOK);
        }
        let errors = || fs::read_to_string(&errors).unwrap_or_default();
        assert!(child.wait().unwrap().success(), "{}", errors());
        let completed = errors()
            .lines()
            .filter(|line| line.starts_with('✓'))
            .count();
        assert_eq!(completed, steps as usize + 1, "{}", errors());
        used
    }

    /// Whether a process has ended, and the time that it used itself; it must not have been waited for yet.
    fn time(process: &Path) -> (bool, Duration) {
        let stat = fs::read_to_string(process.join("stat")).unwrap();
        // The name, which may have anything in it, is in parentheses.
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        let fields: Vec<&str> = rest.split(' ').collect();
        let ticks: u32 = [11, 12].iter().map(|at| ticks(fields[*at])).sum();
        (fields[0] == "Z", TICK * ticks)
    }

    fn ticks(field: &str) -> u32 {
        field.parse().unwrap()
    }

    /// The most memory that a process has had at a time, in bytes; nothing when it has ended.
    fn peak(process: &Path) -> u64 {
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
        kilobytes.unwrap_or_default() << 10
    }
}

//! Counts the cost of a pipeline step: machine instructions and writes of each step, and memory of a thousand of them.
//!
//! `cargo bench --package outlast-cli --bench instructions` fails if a step exceeds its limits. CPU time is printed
//! only: it depends on the machine.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it is a benchmark"
)]

#[cfg(target_os = "linux")]
#[path = "../../kernel/benches/support/callgrind.rs"]
#[expect(dead_code, reason = "the program that is counted is another one")]
mod callgrind;

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

/// The resource usage of a process is only known on Linux.
#[cfg(not(target_os = "linux"))]
fn main() {
    println!("the cost of a step is measured on Linux only");
}

#[cfg(target_os = "linux")]
mod linux {
    use crate::callgrind::{collected, valgrind};
    use std::fmt::Write as _;
    use std::fs;
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::thread::sleep;
    use std::time::Duration;
    use tempfile::TempDir;

    const STEPS: u32 = 1000;
    const FEW_STEPS: u32 = 10;
    /// Steps under valgrind, which is some fifty times slower.
    const COUNTED_STEPS: u32 = 40;
    /// Maximum memory of a thousand steps, beyond that of ten.
    const MAX_MEMORY: u64 = 64 << 20;
    /// The system counts CPU time in hundredths of a second.
    const TICK: Duration = Duration::from_millis(10);
    /// Interval at which the counters of a running process are read; they only grow.
    const READ_INTERVAL: Duration = Duration::from_millis(5);

    struct Case {
        name: &'static str,
        step: &'static str,
        /// In the test profile, by the command's own process.
        max_instructions: u64,
        max_bytes_written: u64,
        max_writes: u64,
    }

    const CASES: [Case; 2] = [
        Case {
            name: "prompt",
            step: "prompt: Say hello",
            max_instructions: 7_000_000,
            max_bytes_written: 150_000,
            max_writes: 100,
        },
        Case {
            name: "command",
            step: "command: [\"true\"]",
            max_instructions: 3_000_000,
            max_bytes_written: 80_000,
            max_writes: 60,
        },
    ];

    /// Resources that a process used, without its children.
    #[derive(Clone, Copy, Default)]
    struct Usage {
        cpu: Duration,
        memory: u64,
        bytes_written: u64,
        writes: u64,
    }

    pub(super) fn main() {
        // `cargo bench` passes this argument; `cargo test --all-targets` does not, and skips the measurement.
        if !std::env::args().any(|argument| argument == "--bench") {
            return;
        }
        let failed: Vec<String> = CASES.iter().flat_map(check).collect();
        assert!(
            failed.is_empty(),
            "a step costs more than it may: {}",
            failed.join("; ")
        );
    }

    /// Returns the limits that the steps of a case exceed.
    fn check(case: &Case) -> Vec<String> {
        let few = run(case.step, FEW_STEPS);
        let many = run(case.step, STEPS);
        let each = |total: u64, of_few: u64| (total - of_few) / u64::from(STEPS - FEW_STEPS);
        let instructions = (count(case.step, 2 * COUNTED_STEPS) - count(case.step, COUNTED_STEPS))
            / u64::from(COUNTED_STEPS);
        let numbers = [
            ("instructions", instructions, case.max_instructions),
            (
                "bytes written",
                each(many.bytes_written, few.bytes_written),
                case.max_bytes_written,
            ),
            ("writes", each(many.writes, few.writes), case.max_writes),
            (
                "bytes of memory, together",
                many.memory.saturating_sub(few.memory),
                MAX_MEMORY,
            ),
        ];
        let Case { name, .. } = case;
        println!("{STEPS} {name} steps, each: {:?} CPU", many.cpu / STEPS);
        for (unit, number, limit) in numbers {
            println!("{number:>12} {unit} (at most {limit})");
        }
        numbers
            .iter()
            .filter(|(_, number, limit)| number > limit)
            .map(|(unit, number, limit)| format!("{name}: {number} {unit}, at most {limit}"))
            .collect()
    }

    /// Returns a pipeline of independent steps.
    fn pipeline(step: &str, steps: u32) -> String {
        let mut text = "provider: mock\nmodel: ok\nsteps:\n".to_owned();
        for number in 1..=steps {
            writeln!(text, "  - id: s{number}\n    {step}").unwrap();
        }
        text
    }

    /// Writes the pipeline into the folder and lets the command run it there.
    fn prepare(command: &mut Command, folder: &Path, pipeline: &str) {
        fs::write(folder.join("fan-out.yaml"), pipeline).unwrap();
        command
            .args(["run", "fan-out.yaml"])
            .current_dir(folder)
            .env("HOME", folder)
            .env("OUTLAST_HOME", folder.join("home"))
            .stdin(Stdio::null());
    }

    fn count(step: &str, steps: u32) -> u64 {
        let folder = TempDir::new().unwrap();
        let mut command = valgrind();
        command.arg(env!("CARGO_BIN_EXE_outlast"));
        prepare(&mut command, folder.path(), &pipeline(step, steps));
        collected(&mut command)
    }

    fn run(step: &str, steps: u32) -> Usage {
        let folder = TempDir::new().unwrap();
        let errors = folder.path().join("errors");
        let mut command = Command::new(env!("CARGO_BIN_EXE_outlast"));
        prepare(&mut command, folder.path(), &pipeline(step, steps));
        let mut child = command
            .stdout(Stdio::null())
            .stderr(fs::File::create(&errors).unwrap())
            .spawn()
            .unwrap();
        let process = format!("/proc/{}", child.id());
        let process = Path::new(&process);
        let mut usage = Usage::default();
        loop {
            usage.memory = usage.memory.max(counter(process, "status", "VmHWM:") << 10);
            usage.bytes_written = usage.bytes_written.max(counter(process, "io", "wchar:"));
            usage.writes = usage.writes.max(counter(process, "io", "syscw:"));
            let (has_ended, cpu) = cpu_time(process);
            usage.cpu = cpu;
            if has_ended {
                break;
            }
            sleep(READ_INTERVAL);
        }
        let errors = || fs::read_to_string(&errors).unwrap_or_default();
        assert!(child.wait().unwrap().success(), "{}", errors());
        let completed = errors()
            .lines()
            .filter(|line| line.starts_with('✓'))
            .count();
        assert_eq!(completed, steps as usize + 1, "{}", errors());
        usage
    }

    /// Whether a process has ended, and the CPU time that it used itself; it must not have been waited for yet.
    fn cpu_time(process: &Path) -> (bool, Duration) {
        let stat = fs::read_to_string(process.join("stat")).unwrap();
        // The name, which may contain anything, is in parentheses.
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        let fields: Vec<&str> = rest.split(' ').collect();
        let ticks: u32 = [11, 12]
            .iter()
            .map(|index: &usize| fields[*index].parse::<u32>().unwrap())
            .sum();
        (fields[0] == "Z", TICK * ticks)
    }

    /// Returns a number in a file of `/proc`; 0 when the process has ended.
    fn counter(process: &Path, file: &str, name: &str) -> u64 {
        let text = fs::read_to_string(process.join(file)).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.trim().split(' ').next()?.parse().ok());
        number.unwrap_or_default()
    }
}

//! `outlast demo`, as a new user runs it.

#[cfg(target_os = "linux")]
use crate::mock_server::wait_for;
use crate::support::{CommandResult, Outlast};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A demo in a temporary folder of its own.
struct Demo {
    outlast: Outlast,
}

impl Demo {
    fn new() -> Self {
        let outlast = Outlast::new();
        std::fs::create_dir(outlast.folder.path().join("tmp")).unwrap();
        Self { outlast }
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = self.outlast.command(&[&["demo", "--fast"], more].concat());
        command
            .env("TMPDIR", self.tmp())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::null());
        command
    }

    fn tmp(&self) -> std::path::PathBuf {
        self.outlast.folder.path().join("tmp")
    }

    /// Checks that the temporary folder is empty and that there is no home.
    fn assert_nothing_left(&self) {
        let left: Vec<_> = std::fs::read_dir(self.tmp()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        assert!(!self.outlast.home().exists());
    }
}

/// Returns the id, the parent and the state of every visible process.
#[cfg(target_os = "linux")]
fn processes() -> Vec<(u32, u32, char)> {
    let stat = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        Some((number, fields.next()?.parse().ok()?, state))
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(stat).collect()
}

/// Returns the child processes of a process.
#[cfg(target_os = "linux")]
fn children(parent: u32) -> Vec<u32> {
    let own = processes().into_iter().filter(|(_, of, _)| *of == parent);
    own.map(|(number, ..)| number).collect()
}

/// Waits until none of them runs.
#[cfg(target_os = "linux")]
fn wait_for_end(children: &[u32]) {
    let runs = |(number, _, state): &(u32, u32, char)| children.contains(number) && *state != 'Z';
    wait_for("end of all processes", || !processes().iter().any(runs));
}

#[cfg(all(unix, not(target_os = "linux")))]
fn children(_: u32) -> Vec<u32> {
    Vec::new()
}

#[cfg(all(unix, not(target_os = "linux")))]
fn wait_for_end(_: &[u32]) {}

/// Counts the lines of a text that begin with the mark.
fn marked(text: &str, mark: char) -> usize {
    let is_marked = |line: &&str| line.starts_with(&format!("  {mark} "));
    text.lines().filter(is_marked).count()
}

#[test]
fn demo_completes_and_timeline_matches_scenes() {
    let demo = Demo::new();
    let ran = CommandResult::of(&mut demo.command(&[]));
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    demo.assert_nothing_left();
    let (scenes, picture) = ran.stdout.split_once("What happened").unwrap();
    assert_eq!(marked(scenes, '▲'), 9, "{scenes}");
    assert_eq!(scenes.matches("■ error: Credential refused").count(), 1);
    assert_eq!(scenes.matches("\n✗").count(), 0, "{scenes}");
    for says in [
        "; the last time it was told 45s.",
        "19 of 19 words were shown, 0 of them twice.",
        "proof.txt has 1 line",
        "`outlast doctor`",
    ] {
        assert!(scenes.contains(says), "{says}: {scenes}");
    }
    let waits = times(scenes, "It waited ", ";");
    assert_eq!(waits.len(), 3, "{scenes}");
    let least = waits.iter().zip([5, 10, 45]);
    assert!(
        least.clone().all(|(wait, least)| *wait >= least),
        "{waits:?}"
    );
    // Nine from the report, and one of the scene without a report.
    let bars = picture.split("▲ asks").next().unwrap();
    assert_eq!(bars.matches('▲').count(), 10, "{picture}");
    for (mark, count) in [('✂', 1), ('●', 1), ('✗', 1), ('↻', 1), ('✓', 3), ('■', 1)] {
        assert_eq!(bars.matches(mark).count(), count, "{mark}: {picture}");
    }
    let totals = picture.split_whitespace().collect::<Vec<_>>().join(" ");
    for says in [
        "Requests: 10. Waited: ",
        "Kills survived: 1. Tools run: 1, twice: 0. Words shown twice: 0.",
        "outlast gateway run -- claude",
    ] {
        assert!(totals.contains(says), "{says}: {picture}");
    }
    let waited = times(&totals, "Waited: ", "(");
    let told = 5 * 3600 + 5 + 10 + 45 + 5;
    assert!(waited[0] / 60 >= told / 60, "{waited:?}");
}

/// Returns the durations between two marks, in seconds. A busy machine may wait longer than that, by any amount.
fn times(text: &str, after: &str, before: &str) -> Vec<u64> {
    let text = text.split_once(after).unwrap().1;
    let text = text.split_once(before).unwrap().0;
    let words = text
        .split([' ', ','])
        .filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    let seconds = |word: &str| {
        let mut seconds = 0;
        for part in word.split_inclusive(char::is_alphabetic) {
            let (number, unit) = part.split_at(part.len() - 1);
            let unit = match unit {
                "h" => 3600,
                "m" => 60,
                _ => 1,
            };
            seconds += number.parse::<u64>().unwrap() * unit;
        }
        seconds
    };
    words.map(seconds).collect()
}

#[test]
fn demo_on_pipe_prints_plain_lines_within_80_columns() {
    let demo = Demo::new();
    let ran = CommandResult::of(&mut demo.command(&[]));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for line in ran.stdout.lines() {
        assert!(!line.contains(char::is_control), "{line:?}");
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn two_concurrent_demos_complete() {
    let demo = Demo::new();
    let start = |_| {
        let mut command = demo.command(&[]);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let runs: Vec<Child> = (0..2).map(start).collect();
    for child in runs {
        let ran = CommandResult::ended(child);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    }
    demo.assert_nothing_left();
}

/// Starts a demo, sends the signal when a line has the text, and returns the result once all child processes have
/// ended.
#[cfg(unix)]
fn interrupted(demo: &Demo, signal: &str, when: &str) -> CommandResult {
    let mut child = demo
        .command(&[])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains(when) {
        line.clear();
        assert!(stdout.read_line(&mut line).unwrap() > 0, "no {when}");
    }
    let started = children(child.id());
    assert_eq!(started.is_empty(), !cfg!(target_os = "linux"), "{when}");
    let kill = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status()
        .unwrap();
    assert!(kill.success());
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut stdout, &mut rest).unwrap();
    let ran = CommandResult::ended(child);
    wait_for_end(&started);
    CommandResult {
        stdout: rest,
        ..ran
    }
}

#[test]
#[cfg(unix)]
fn signal_during_demo_leaves_no_process_or_folder() {
    let table = [
        ("-INT", 130, "waits 45s"),
        ("-TERM", 143, "waits 5h"),
        ("-INT", 130, "kill -9, with"),
        ("-TERM", 143, "waits the rest"),
    ];
    let is_left_clean = |(signal, code, when)| {
        let demo = Demo::new();
        let ran = interrupted(&demo, signal, when);
        let said = (ran.code, ran.stderr.trim());
        assert_eq!(said, (code, "Stopped; nothing is left of it."), "{when}");
        assert!(!ran.stdout.contains("What happened"), "{}", ran.stdout);
        demo.assert_nothing_left();
    };
    std::thread::scope(|scope| {
        for case in table {
            scope.spawn(move || is_left_clean(case));
        }
    });
}

#[test]
#[cfg(target_os = "linux")]
fn killed_demo_leaves_no_child_processes() {
    let demo = Demo::new();
    let ran = interrupted(&demo, "-KILL", "waits 45s");
    assert_eq!(ran.code, -1);
}

#[test]
fn closed_stdout_ends_demo_and_cleans_up() {
    let demo = Demo::new();
    let mut child = demo
        .command(&[])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    drop(stdout);
    let ran = CommandResult::ended(child);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    demo.assert_nothing_left();
}

#[test]
fn demo_ignores_user_settings_and_environment() {
    let demo = Demo::new();
    demo.outlast.write("outlast.toml", "this is no setting");
    demo.outlast.write("home/outlast.toml", "neither is this");
    let mut command = demo.command(&[]);
    command
        .env("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .env("OUTLAST_MODEL", "error:500")
        .env("OUTLAST_TIME_SCALE", "nonsense");
    let ran = CommandResult::of(&mut command);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
}

#[test]
fn demo_reports_unwritable_folder() {
    let demo = Demo::new();
    demo.outlast.write("file", "");
    let folder = |name: &str| demo.outlast.folder.path().join(name);
    let mut places = vec![folder("missing"), folder("file")];
    if let Some(place) = read_only(&folder("read-only")) {
        places.push(place);
    }
    for place in places {
        let ran = CommandResult::of(demo.command(&[]).env("TMPDIR", &place));
        let problem = format!(
            "error: cannot make a temporary folder in {}; set TMPDIR to a folder that you can write to: ",
            place.display()
        );
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
        assert!(ran.stderr.starts_with(&problem), "{}", ran.stderr);
    }
    demo.assert_nothing_left();
}

/// Returns a folder that cannot be written; for root there is none.
#[cfg(unix)]
fn read_only(folder: &Path) -> Option<std::path::PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir(folder).unwrap();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o555)).unwrap();
    let can_write = std::fs::create_dir(folder.join("inner")).is_ok();
    (!can_write).then(|| folder.to_owned())
}

#[cfg(not(unix))]
fn read_only(_: &Path) -> Option<std::path::PathBuf> {
    None
}

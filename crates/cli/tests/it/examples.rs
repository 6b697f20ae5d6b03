//! The example pipelines, run on copies as their READMEs say.

use crate::support::{CommandResult, Outlast};
use std::path::{Path, PathBuf};

fn checked_in() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// An example in a folder of its own, and the result of its run.
struct Example {
    outlast: Outlast,
    ran: CommandResult,
}

impl Example {
    fn run(name: &str) -> Self {
        let mut outlast = Outlast::new();
        // Its time limits are meant for people: they must not be reached on a busy test machine.
        outlast.scale = "10";
        copy(&checked_in().join(name), outlast.folder.path());
        let path = std::env::var("PATH").unwrap_or_default();
        let ran = outlast.run_with(&["run", "pipeline.yaml"], &[("PATH", &path)]);
        assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
        Self { outlast, ran }
    }

    /// Returns the reported failures, in order.
    fn failures(&self) -> Vec<&str> {
        let lines = self.ran.stderr.lines();
        lines.filter_map(|line| line.strip_prefix("⚠ ")).collect()
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.outlast.folder.path().join(path)).unwrap()
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().unwrap().is_dir() {
            // Files that a manual run left behind.
            true if entry.file_name() == "work" => {}
            true => copy(&source, &target),
            false => std::fs::write(target, std::fs::read(source).unwrap()).unwrap(),
        }
    }
}

/// Checks that each line has the given beginning.
fn begin_like(lines: &[&str], beginnings: &[&str]) {
    let same = lines.len() == beginnings.len();
    let mut both = lines.iter().zip(beginnings);
    assert!(
        same && both.all(|(line, beginning)| line.starts_with(beginning)),
        "{lines:#?}"
    );
}

#[test]
fn every_example_is_valid_and_documents_its_command() {
    let outlast = Outlast::new();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(checked_in()).unwrap() {
        let folder = entry.unwrap().path();
        let file = folder.join("pipeline.yaml");
        let ran = outlast.run(&["run", "--check", file.to_str().unwrap()]);
        assert_eq!(ran.code, 0, "{}: {}", folder.display(), ran.stderr);
        let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
        assert!(readme.contains("$ outlast run "), "{}", folder.display());
        names.push(folder.file_name().unwrap().to_owned());
    }
    names.sort();
    assert_eq!(names, ["fetch", "implement-and-test", "review"]);
}

#[test]
fn fetch_example_retries_outages_and_malformed_output() {
    let example = Example::run("fetch");
    begin_like(
        &example.failures(),
        &[
            "fetch: Server overloaded, retrying in",
            "fetch: Server overloaded, retrying in",
            "summary: Server overloaded, retrying in",
            "summary: Server overloaded, retrying in",
            "summary: Output is malformed, trying again at once (attempt 2/5)",
            "summary: Server overloaded, retrying in",
            "summary: Server overloaded, retrying in",
        ],
    );
    let expected = "{\"title\": \"How sea otters sleep\", \"sentences\": 2}\n";
    assert_eq!(example.ran.stdout, expected);
}

#[test]
fn implement_example_fixes_failing_tests_in_a_copy() {
    let example = Example::run("implement-and-test");
    begin_like(
        &example.failures(),
        &[
            "implement: Tests failed, trying again at once (attempt 2/4): `sh tests.sh` ended with exit code 1",
        ],
    );
    let before = checked_in().join("implement-and-test/project/roman.sh");
    let before = std::fs::read_to_string(before).unwrap();
    assert_eq!(example.read("project/roman.sh"), before);
    assert!(example.read("work/roman.sh").contains("4:IV"));
    assert!(example.ran.stdout.starts_with("--- project/roman.sh"));
}

#[test]
fn review_example_repairs_contract_violation_unattended() {
    let example = Example::run("review");
    begin_like(
        &example.failures(),
        &["review: Contract broken, trying again at once (attempt 2/3)"],
    );
    let expected = "Do not merge yet.\n\
        1. shell injection by `name` in report\n\
        2. ratio divides by zero when `all` is 0\n\
        3. `all` hides a builtin\n";
    assert_eq!(example.ran.stdout, expected);
}

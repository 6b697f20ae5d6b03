//! Runs every example of every help text.
//!
//! The beginning of an example selects the state that it needs. A port, an id or an address in it is replaced by the
//! real one.

use super::stage::{Running, Stage};
use super::{Help, all};
use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of commands whose examples run at the same time; three of them are demos, which wait most of the time.
const AT_ONCE: usize = 6;

/// The chat needs a terminal: the terminal tests cover it.
const DRIVEN_ELSEWHERE: [&str; 2] = ["outlast", "outlast --continue"];

/// The state that an example needs, and how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    /// A folder with files.
    Plain,
    Session,
    InterruptedSession,
    Run,
    InterruptedRun,
    /// A run with one waiting step and one that asks a question.
    OpenRun,
    /// A gateway with a held request.
    Gateway,
    /// Serves until a signal ends it, with exit code 0.
    Serves,
    /// Polls a gateway until Ctrl-C.
    Watches,
}

/// The first matching beginning counts.
const SCENES: [(&str, Scene); 21] = [
    ("outlast sessions", Scene::Session),
    (
        "outlast -p \"And now the other one\" --continue",
        Scene::Session,
    ),
    ("outlast -p /compact", Scene::Session),
    ("outlast rpc --mode native --continue", Scene::Session),
    ("outlast resume", Scene::InterruptedSession),
    ("outlast run --resume", Scene::InterruptedRun),
    ("outlast runs approve", Scene::OpenRun),
    ("outlast runs retry-now", Scene::OpenRun),
    ("outlast runs cancel", Scene::OpenRun),
    ("outlast runs", Scene::Run),
    ("outlast gateway status --watch", Scene::Watches),
    ("outlast gateway status", Scene::Gateway),
    ("outlast gateway retry-now", Scene::Gateway),
    ("outlast gateway cancel", Scene::Gateway),
    ("outlast gateway page", Scene::Gateway),
    ("outlast gateway env", Scene::Gateway),
    ("outlast gateway run", Scene::Plain),
    ("outlast gateway", Scene::Serves),
    ("outlast serve --openapi", Scene::Plain),
    ("outlast serve", Scene::Serves),
    ("outlast mock", Scene::Serves),
];

impl Scene {
    fn of(example: &str) -> Self {
        let inner = example.split_once("$(").map_or(example, |(_, inner)| inner);
        let found = SCENES.iter().find(|(begin, _)| inner.starts_with(begin));
        found.map_or(Self::Plain, |(_, scene)| *scene)
    }
}

/// Returns an example without its comment.
fn command(example: &str) -> &str {
    example.split("  #").next().unwrap_or(example).trim()
}

/// Runs an example to its end, and returns its exit code and stderr.
fn play(stage: &Stage, example: &str) -> (i32, String) {
    let to_provider = |line: &str| {
        line.replace("http://localhost:11434", &stage.provider.url())
            .replace("127.0.0.1:8787", &stage.provider.address)
    };
    let run = |line: &str| {
        let ran = stage.run(&to_provider(line));
        (ran.code, ran.stderr)
    };
    match Scene::of(example) {
        // With a scaled clock, a provider would have a fortieth of a second to respond.
        Scene::Plain if example.starts_with("outlast doctor") => {
            run(&format!("OUTLAST_TIME_SCALE=1 {example}"))
        }
        Scene::Plain => run(example),
        Scene::Session => {
            stage.finished_session();
            run(&example.replace("01a1", &stage.newest("sessions")))
        }
        Scene::InterruptedSession => {
            stage.interrupted_session();
            run(&example.replace("01a1", &stage.newest("sessions")))
        }
        Scene::Run => {
            stage.finished_run();
            run(&example.replace("01a1", &stage.newest("runs")))
        }
        Scene::InterruptedRun => {
            stage.interrupted_run();
            run(example)
        }
        Scene::OpenRun => {
            let _run = stage.open_run();
            run(&example.replace("01a1", &stage.newest("runs")))
        }
        Scene::Gateway => {
            let (gateway, id, _request) = stage.gateway();
            let port = gateway.address.rsplit(':').next().unwrap();
            run(&example.replace("3f2a", &id).replace("4180", port))
        }
        Scene::Serves => {
            let line = example.replace("outlast mock", "outlast mock --listen 127.0.0.1:0");
            until_signalled(stage, &line, "listening on", "-TERM")
        }
        Scene::Watches => {
            let _gateway = stage.gateway();
            until_signalled(stage, example, "127.0.0.1", "-INT")
        }
    }
}

/// Runs a command that does not end by itself until it prints the given text, then sends the signal.
fn until_signalled(stage: &Stage, line: &str, says: &'static str, signal: &str) -> (i32, String) {
    let mut shell = stage.shell(&format!("exec {line}"));
    let child = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut running = Running(child.unwrap());
    running.wait_for_stdout(says);
    running.signal(signal);
    let mut said = String::new();
    let stderr = running.0.stderr.as_mut().unwrap();
    std::io::Read::read_to_string(stderr, &mut said).unwrap();
    (running.0.wait().unwrap().code().unwrap_or(-1), said)
}

/// Groups examples that run one after the other on a stage of their own: those of one command. A demo takes long, so
/// each is alone, and demos come first.
fn acts(helps: &[Help]) -> Vec<Vec<&str>> {
    let (mut acts, mut known) = (Vec::new(), BTreeSet::from(DRIVEN_ELSEWHERE));
    for help in helps {
        let examples = help.examples().into_iter().map(command);
        let unknown = examples.filter(|example| known.insert(example));
        let (demos, others): (Vec<_>, Vec<_>) =
            unknown.partition(|example| example.starts_with("outlast demo"));
        acts.push(others);
        demos
            .into_iter()
            .for_each(|demo| acts.insert(0, vec![demo]));
    }
    acts
}

/// Runs examples one after the other, and returns the problems.
fn play_all(examples: &[&str]) -> Vec<String> {
    let stage = Stage::new();
    let failed = examples.iter().filter_map(|example| {
        let (code, said) = play(&stage, example);
        // An example must print neither errors nor warnings.
        let is_well = code == 0 && !said.contains("error:") && !said.contains("warning:");
        (!is_well).then(|| format!("$ {example}\nexit {code}\n{said}"))
    });
    failed.collect()
}

#[test]
fn every_example_runs_as_it_stands() {
    let helps = all();
    let acts = acts(&helps);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut failed = Vec::new();
        while let Some(act) = acts.get(next.fetch_add(1, Ordering::Relaxed)) {
            failed.extend(play_all(act));
        }
        failed
    };
    let failed: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        let ended = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap());
        ended.collect()
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn example_tables_have_no_unused_entries() {
    let helps = all();
    let all: Vec<&str> = helps
        .iter()
        .flat_map(|help| help.examples())
        .map(command)
        .collect();
    for (begin, _) in SCENES {
        assert!(all.iter().any(|one| one.contains(begin)), "{begin}");
    }
    for one in DRIVEN_ELSEWHERE {
        assert!(all.contains(&one), "{one}");
    }
}

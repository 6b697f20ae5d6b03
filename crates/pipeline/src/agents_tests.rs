use super::*;
use crate::definition::CommandLine;
use crate::failure::agent_problem;
use crate::process::{ProcessObserver, ProcessResult, Spec, Stream, run};
use outlast_engine::CancellationToken;
use outlast_kernel::Timestamp;
use outlast_kernel::verdict::{Cause, Class};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use tempfile::TempDir;

fn agent(name: &str, allow: &[&str]) -> Agent {
    Agent {
        name: name.to_owned(),
        allow: allow.iter().map(|what| (*what).to_owned()).collect(),
        ..Agent::default()
    }
}

fn templated(parts: &[&str]) -> Agent {
    Agent {
        program: Some(parts.iter().map(|part| (*part).to_owned()).collect()),
        ..agent("mine", &[])
    }
}

fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/agents_tests")
}

/// The result of an agent that prints a recording, with its arguments and its input.
struct RecordedRun {
    answer: AgentResult,
    signs: Vec<WatchEvent>,
    ran: ProcessResult,
    command: String,
    prompt: String,
}

impl RecordedRun {
    fn cause(&self) -> Cause {
        let error = self.answer.error.as_deref();
        agent_problem(error, &self.ran, false, Timestamp::default()).cause
    }
}

async fn play(agent: &Agent, recording: &str, code: i32) -> RecordedRun {
    let folder = TempDir::new().unwrap();
    let stand_in = folder.path().join(&agent.name);
    symlink(recordings().join("agent.sh"), stand_in).unwrap();
    let invocation = invocation(agent, "What is it?\n", Path::new("unused"));
    let mut env = invocation.env;
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    env.push(("PATH".to_owned(), path));
    let recording = recordings().join(recording).display().to_string();
    env.push(("RECORDING".to_owned(), recording));
    env.push(("CODE".to_owned(), code.to_string()));
    let line = CommandLine::Program(invocation.program);
    let spec = Spec {
        line: &line,
        directory: folder.path(),
        env: &env,
        hidden_variables: &[],
        input: invocation.input.as_deref(),
    };
    let (mut reader, mut signs) = (invocation.reader, Vec::new());
    let watching = ProcessObserver {
        on_start: &mut |_, _| {},
        on_output: &mut |stream, bytes| {
            assert_eq!(stream, Stream::Stdout, "{}", String::from_utf8_lossy(bytes));
            signs.extend(reader.push(bytes));
        },
    };
    let ran = run(spec, watching, &CancellationToken::new())
        .await
        .unwrap();
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    RecordedRun {
        answer: reader.finish(),
        signs,
        ran,
        command: read("called"),
        prompt: read("asked"),
    }
}

fn progress(signs: &[WatchEvent]) -> Vec<&str> {
    let progress = signs.iter().filter_map(|sign| match sign {
        WatchEvent::Progress(what) => Some(what.as_str()),
        _ => None,
    });
    progress.collect()
}

fn reads(signs: &[WatchEvent], what: &str) -> bool {
    signs.contains(&WatchEvent::Activity(what.to_owned()))
}

#[tokio::test]
async fn claude_is_invoked_and_its_output_parsed() {
    let played = play(&agent("claude", &["write"]), "claude.jsonl", 0).await;
    assert_eq!(
        played.command.lines().collect::<Vec<_>>(),
        [
            "claude",
            "-p",
            "--output-format",
            "stream-json",
            "--verbose",
            "--permission-mode",
            "dontAsk",
            "--allowedTools",
            "Read,Glob,Grep,Edit,Write,NotebookEdit",
            "--disallowedTools",
            "Bash",
        ]
    );
    assert_eq!(played.prompt, "What is it?\n");
    let answer = played.answer;
    assert!(answer.text.starts_with("Hello from the scripted provider"));
    assert_eq!(answer.error, None);
    assert_eq!((answer.usage.input, answer.usage.output), (1_330_998, 342));
    assert_eq!(answer.cost, Cost(5_330_832));
    assert_eq!(progress(&played.signs), ["Write /home/user/project/a.txt"]);
    assert!(reads(&played.signs, "Read /home/user/project/hello.txt"));
}

#[tokio::test]
async fn codex_is_invoked_and_its_output_parsed() {
    let asked = Agent {
        model: Some("gpt-5".to_owned()),
        ..agent("codex", &[])
    };
    let played = play(&asked, "codex.jsonl", 0).await;
    let called: Vec<&str> = played.command.lines().collect();
    assert_eq!(called[..4], ["codex", "exec", "--json", "--color"]);
    assert_eq!(called[6..], ["--sandbox", "read-only", "--model", "gpt-5"]);
    assert_eq!(played.prompt, "What is it?\n");
    assert!(played.answer.text.starts_with("Done after 3 steps."));
    assert_eq!(played.answer.error, None);
    assert_eq!(
        (played.answer.usage.input, played.answer.usage.output),
        (40_959, 34)
    );
    assert_eq!(progress(&played.signs), [""; 0]);
    assert!(reads(
        &played.signs,
        "command_execution /bin/bash -lc 'cat hello.txt'"
    ));
}

#[tokio::test]
async fn opencode_is_invoked_and_its_output_parsed() {
    let played = play(&agent("opencode", &[]), "opencode.jsonl", 0).await;
    assert_eq!(played.command, "opencode\nrun\n--format\njson\n");
    assert_eq!(played.prompt, "What is it?\n");
    assert!(played.answer.text.starts_with("Done after 2 steps."));
    assert_eq!(played.answer.error, None);
    assert_eq!(played.answer.usage.input, 7699 + 7789 + 7853);
    assert!(played.answer.cost > Cost(23_142 + 23_412));
    assert_eq!(progress(&played.signs), [""; 0]);
    assert!(reads(&played.signs, "read /home/user/project/hello.txt"));
}

#[tokio::test]
async fn pi_is_invoked_and_its_output_parsed() {
    let played = play(&agent("pi", &["write", "bash"]), "pi.jsonl", 0).await;
    assert!(
        played
            .command
            .ends_with("--tools\nread,grep,find,ls,edit,write,bash\n")
    );
    assert_eq!(played.prompt, "What is it?\n");
    assert_eq!(
        played.answer.text,
        "Done after 2 steps. hello\n | a.txt\nhello.txt\n"
    );
    assert_eq!(played.answer.error, None);
    assert_eq!(played.answer.usage.input, 1395 + 1460 + 1528);
    assert_eq!(played.answer.cost, Cost(4230 + 4425 + 4689));
    assert_eq!(progress(&played.signs), [""; 0]);
}

#[tokio::test]
async fn limit_reset_time_is_read_from_agent_output() {
    let played = play(&agent("claude", &[]), "claude-limited.jsonl", 1).await;
    let end = Timestamp::from_millis(1_794_775_506_000);
    assert_eq!(played.answer.not_before, Some(end));
    let played = play(&agent("claude", &[]), "claude.jsonl", 0).await;
    assert_eq!(played.answer.not_before, None);
}

#[tokio::test]
async fn recorded_agent_error_decides_cause_despite_exit_code() {
    let table = [
        ("claude", "claude-refused.jsonl", 1, Cause::Auth),
        ("claude", "claude-overflow.jsonl", 1, Cause::ContextOverflow),
        ("claude", "claude-turns.jsonl", 1, Cause::CeilingReached),
        ("claude", "claude-budget.jsonl", 1, Cause::CeilingReached),
        ("claude", "claude-limited.jsonl", 1, Cause::UsageLimit),
        ("codex", "codex-limited.jsonl", 1, Cause::RateLimited),
        ("codex", "codex-overflow.jsonl", 1, Cause::ContextOverflow),
        ("opencode", "opencode-refused.jsonl", 1, Cause::Auth),
        (
            "opencode",
            "opencode-overflow.jsonl",
            1,
            Cause::ContextOverflow,
        ),
        // Its exit status is 0 whatever happened.
        ("pi", "pi-failed.jsonl", 0, Cause::ServerError),
        ("pi", "pi-overflow.jsonl", 0, Cause::ContextOverflow),
    ];
    for (name, recording, code, expected) in table {
        let played = play(&agent(name, &[]), recording, code).await;
        assert!(played.answer.error.is_some(), "{recording}");
        assert_eq!(
            played.cause(),
            expected,
            "{recording}: {:?}",
            played.answer.error
        );
    }
}

#[tokio::test]
async fn agent_retry_emits_paused_and_resumed() {
    for (name, recording, times) in [
        ("claude", "claude-refused.jsonl", 1),
        ("codex", "codex-limited.jsonl", 1),
        ("pi", "pi-failed.jsonl", 3),
    ] {
        let played = play(&agent(name, &[]), recording, 0).await;
        let waits = |sign: &&WatchEvent| matches!(sign, WatchEvent::Paused | WatchEvent::Resumed);
        let waits: Vec<&WatchEvent> = played.signs.iter().filter(waits).collect();
        assert_eq!(
            waits,
            [&WatchEvent::Paused, &WatchEvent::Resumed].repeat(times),
            "{name}"
        );
    }
}

#[tokio::test]
async fn agent_output_without_result_is_truncated() {
    for name in ["claude", "codex", "opencode", "pi"] {
        let lines = fs::read_to_string(recordings().join(format!("{name}.jsonl"))).unwrap();
        let cut: Vec<&str> = lines.lines().take(4).collect();
        let mut reader = invocation(&agent(name, &[]), "", Path::new("")).reader;
        reader.push(cut.join("\n").as_bytes());
        let answer = reader.finish();
        assert_eq!(answer.error.as_deref(), Some(NO_RESULT), "{name}");
        let well = ProcessResult {
            code: Some(0),
            ..ProcessResult::default()
        };
        let problem = agent_problem(Some(NO_RESULT), &well, false, Timestamp::default());
        assert_eq!(problem.cause, Cause::TruncatedStream);
    }
    let refused = ProcessResult {
        code: Some(1),
        errors: "error: HTTP 429".to_owned(),
        ..ProcessResult::default()
    };
    let problem = agent_problem(Some(NO_RESULT), &refused, false, Timestamp::default());
    assert_eq!(
        problem.cause,
        Cause::RateLimited,
        "what it printed says more"
    );
}

#[test]
fn agent_output_parses_the_same_in_any_chunk_size() {
    for name in ["claude", "codex", "opencode", "pi"] {
        let bytes = fs::read(recordings().join(format!("{name}.jsonl"))).unwrap();
        let read = |size: usize| {
            let mut reader = invocation(&agent(name, &[]), "", Path::new("")).reader;
            let pieces = bytes.chunks(size);
            let signs: Vec<WatchEvent> = pieces.flat_map(|piece| reader.push(piece)).collect();
            (signs, reader.finish())
        };
        let whole = read(bytes.len());
        for size in [1, 7, 100] {
            assert!(read(size) == whole, "{name} in pieces of {size}");
        }
    }
}

#[test]
fn agent_gets_only_tools_that_step_allows() {
    let started = |name: &str, allow: &[&str]| {
        let invocation = invocation(&agent(name, allow), "", Path::new(""));
        let env = invocation
            .env
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"));
        [invocation.program, env.collect()].concat().join(" ")
    };
    let table: [(&str, &[&str], &str); 9] = [
        (
            "claude",
            &[],
            "--allowedTools Read,Glob,Grep --disallowedTools Edit,Write,NotebookEdit,Bash",
        ),
        (
            "claude",
            &["bash"],
            "--allowedTools Read,Glob,Grep,Bash --disallowedTools Edit,Write,NotebookEdit",
        ),
        (
            "claude",
            &["write", "bash"],
            "--allowedTools Read,Glob,Grep,Edit,Write,NotebookEdit,Bash",
        ),
        ("codex", &[], "--sandbox read-only"),
        ("codex", &["write"], "--sandbox workspace-write"),
        (
            "codex",
            &["bash"],
            "--sandbox workspace-write -c sandbox_workspace_write.network_access=true",
        ),
        ("opencode", &["write"], r#""bash":"deny","edit":"allow""#),
        ("pi", &[], "--tools read,grep,find,ls"),
        ("pi", &["bash"], "--tools read,grep,find,ls,bash"),
    ];
    for (name, allow, expected) in table {
        let started = started(name, allow);
        assert!(started.contains(expected), "{name}: {started}");
        let ends = ["codex", "pi"].contains(&name) && !allow.contains(&"write");
        assert!(!ends || started.ends_with(expected), "{name}: {started}");
    }
}

#[test]
fn template_inserts_prompt_once_without_expanding_it() {
    let hostile = "$(rm -rf /) {model} {prompt_file} `x` '\"";
    let asked = Agent {
        model: Some("m1".to_owned()),
        ..templated(&[
            "mine",
            "--model={model}",
            "--ask",
            "{prompt}",
            "{other}",
            "{",
        ])
    };
    let invocation = super::invocation(&asked, hostile, Path::new("/p"));
    assert_eq!(
        invocation.program,
        ["mine", "--model=m1", "--ask", hostile, "{other}", "{"]
    );
    assert_eq!(invocation.input, None);
    let by_file = super::invocation(
        &templated(&["mine", "@{prompt_file}"]),
        "x",
        Path::new("/p"),
    );
    assert_eq!((by_file.program[1].as_str(), by_file.input), ("@/p", None));
    let by_input = super::invocation(&templated(&["mine", "{model}"]), "x", Path::new("/p"));
    assert_eq!(by_input.program, ["mine", ""]);
    assert_eq!(by_input.input.as_deref(), Some(b"x".as_slice()));
}

#[test]
fn other_program_output_is_its_result_and_lines_progress() {
    let mut reader = invocation(&templated(&["mine"]), "", Path::new("")).reader;
    let signs = reader.push(b"{\"type\":\"result\"}\n\nsecond \x1b[31mline\nthird");
    let said = |what: &str| WatchEvent::Progress(what.to_owned());
    assert_eq!(signs, [said("{\"type\":\"result\"}"), said("second line")]);
    let answer = reader.finish();
    assert_eq!(
        answer.text,
        "{\"type\":\"result\"}\n\nsecond \x1b[31mline\nthird"
    );
    assert_eq!(answer.error, None);
}

#[test]
fn endless_output_line_is_not_buffered() {
    let mut reader = invocation(&agent("codex", &[]), "", Path::new("")).reader;
    for _ in 0..40 {
        reader.push(&vec![b'x'; 1 << 20]);
        assert!(reader.line.len() <= MAX_LINE_BYTES);
    }
    let signs = reader.push(b"\n{\"type\":\"turn.completed\",\"usage\":{}}\n");
    assert_eq!(
        signs[0],
        WatchEvent::Activity("a line that is too long to read".to_owned())
    );
    assert_eq!(reader.finish().error, None);
}

#[test]
fn agent_changes_count_as_progress() {
    let mut reader = invocation(&agent("codex", &[]), "", Path::new("")).reader;
    let signs = reader.push(
        b"{\"type\":\"item.started\",\"item\":{\"type\":\"command_execution\",\"command\":\"bash -lc 'cargo test'\"}}\n\
          {\"type\":\"item.completed\",\"item\":{\"type\":\"file_change\",\"changes\":[]}}\n",
    );
    assert_eq!(
        progress(&signs),
        ["command_execution bash -lc 'cargo test'", "file_change"]
    );
}

#[test]
fn agent_budget_error_is_budget_exhausted() {
    let well = ProcessResult {
        code: Some(1),
        ..ProcessResult::default()
    };
    for error in [
        "error_max_turns",
        "error_max_budget_usd: Reached maximum budget ($1)",
    ] {
        let problem = agent_problem(Some(error), &well, true, Timestamp::default());
        assert_eq!(problem.class, Class::BudgetExhausted, "{error}");
    }
}

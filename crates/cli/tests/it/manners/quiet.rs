//! `--quiet`, and the spinner of slow commands.

use super::terminal::Terminal;
use crate::support::{CommandResult, Outlast};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

const HELLO: &str =
    "Hello from the scripted provider: no network, no key, no cost. You said: Say hello\n";

const FAILING: &str = "
steps:
  - {id: good, command: echo fine}
  - {id: bad, needs: [good], command: exit 7}
";

const ASKING: &str = "
steps:
  - {id: gate, gate: {type: approval, message: Publish it?, timeout: 1m}}
";

fn code_and_both(ran: CommandResult) -> (i32, String, String) {
    (ran.code, ran.stdout, ran.stderr)
}

#[test]
fn quiet_flag_anywhere_prints_only_completion() {
    let table = [
        &["-q", "-p", "Say hello"][..],
        &["--quiet", "-p", "Say hello"],
        &["-p", "Say hello", "-q"],
        &["-p", "Say hello", "--fallback", "ok", "--quiet"],
    ];
    for arguments in table {
        let ran = Outlast::new().run(arguments);
        let expected = (0, HELLO.to_owned(), String::new());
        assert_eq!(code_and_both(ran), expected, "{arguments:?}");
    }
}

#[test]
fn quiet_flag_works_before_and_after_command_names() {
    let outlast = Outlast::new();
    for arguments in [
        &["-q", "sessions", "list"][..],
        &["sessions", "-q", "list"],
        &["sessions", "list", "-q"],
        &["-q", "runs"],
        &["resume", "-q"],
        &["-q", "run", "--resume"],
    ] {
        let ran = outlast.run(arguments);
        let nothing = (0, String::new(), String::new());
        assert_eq!(code_and_both(ran), nothing, "{arguments:?}");
    }
    let ran = outlast.run(&["gateway", "-q", "status"]);
    let expected = "error: no gateway runs; `outlast gateway` starts one\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (2, expected));
    // The word after an option is its value.
    let ran = outlast.run(&["-p", "-q", "--model", "ok"]);
    assert!(ran.stdout.ends_with("You said: -q\n"), "{}", ran.stdout);
}

#[test]
fn quiet_keeps_failure_messages() {
    let outlast = Outlast::new();
    let ran = outlast.run(&["-q", "-p", "hi", "--model", "overloaded:9"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (3, ""));
    insta::assert_snapshot!(ran.stderr, @r"
    error: Server overloaded: Overloaded (529): gave up after 3 retries
      hint: a more patient policy waits longer: --policy overnight (`outlast policy list` shows all)
    ");
    outlast.write("pipeline.yaml", FAILING);
    let ran = outlast.run(&["run", "pipeline.yaml", "-q"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    let lines: Vec<&str> = ran.stderr.lines().collect();
    let marked = lines.iter().all(|line| line.starts_with('✗'));
    assert!(marked && lines.len() > 1, "{lines:#?}");
}

#[test]
fn warnings_stay() {
    let outlast = Outlast::new();
    outlast.write("home/thesis.txt", "mine");
    let ran = outlast.run(&["-q", "-p", "Say hello"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (4, HELLO));
    let lines: Vec<&str> = ran.stderr.lines().collect();
    let are_warnings = lines.iter().all(|line| line.starts_with("warning: "));
    assert!(are_warnings && lines.len() == 2, "{lines:#?}");
}

#[test]
fn quiet_keeps_questions_of_runs() {
    let outlast = Outlast::new();
    outlast.write("pipeline.yaml", ASKING);
    let ran = outlast.run(&["run", "pipeline.yaml", "-q"]);
    let asked = ran
        .stderr
        .lines()
        .filter(|line| line.starts_with("? gate: Publish it?"));
    assert_eq!(asked.count(), 1, "{}", ran.stderr);
    assert!(!ran.stderr.contains(['●', '▶']), "{}", ran.stderr);
}

#[test]
fn quiet_changes_neither_stdout_nor_exit_code() {
    for arguments in [
        &["-p", "hi", "--model", "overloaded:1", "--no-session"][..],
        &["-p", "hi", "--model", "overloaded:9", "--no-session"],
        &["policy", "list"],
        &["policy", "show", "nope"],
        &[
            "explain",
            "--status",
            "529",
            "--now",
            "2026-11-15T06:00:00Z",
        ],
        &["config", "check"],
        &["sessions", "list", "--json"],
        &["runs", "show", "nope"],
        &["mock", "--script", "nope"],
        &["trust", "--list"],
    ] {
        let outlast = Outlast::new();
        let (loud, quiet) = (
            outlast.run(arguments),
            outlast.run(&[arguments, &["--quiet"]].concat()),
        );
        let both = |ran: &CommandResult| (ran.code, ran.stdout.clone());
        assert_eq!(both(&loud), both(&quiet), "{arguments:?}");
        let is_said = |line: &str| loud.stderr.lines().any(|other| other == line);
        assert!(quiet.stderr.lines().all(is_said), "{}", quiet.stderr);
    }
}

#[test]
fn quiet_gateway_logs_only_failures() {
    let outlast = Outlast::new();
    let script = "exec 3<>\"/dev/tcp/127.0.0.1/${ANTHROPIC_BASE_URL##*:}\"
        printf 'POST /v1/messages HTTP/1.1\\r\\nhost: 127.0.0.1\\r\\nconnection: close\\r\\nx-api-key: k\\r\\ncontent-length: 2\\r\\n\\r\\n{}' >&3
        cat <&3";
    let gateway = |upstream: &str, quiet: &[&str]| {
        let before = ["gateway", "run", "--log", "text", "--upstream", upstream];
        let program = ["--", "bash", "-c", script];
        outlast.run(&[&before, quiet, &program].concat())
    };
    let (loud, quiet) = (
        gateway("mock:overloaded:1", &[]),
        gateway("mock:overloaded:1", &["-q"]),
    );
    assert!(
        loud.stderr.contains("Server overloaded (attempt 1)"),
        "{}",
        loud.stderr
    );
    assert_eq!((quiet.code, quiet.stderr.as_str()), (0, ""));
    let failed = gateway("mock:error:401", &["-q"]);
    assert!(failed.stderr.contains("failed: "), "{}", failed.stderr);
}

// --- at a terminal ---

#[test]
fn quiet_keeps_approval_prompts() {
    let outlast = Outlast::new();
    let prompt = "call write {\"path\":\"a.txt\",\"content\":\"x\"}\nsay done";
    let model = "overloaded:1+ok:agent,times=always";
    let command = outlast.command(&["-q", "-p", prompt, "--model", model]);
    let mut terminal = Terminal::start(command, None);
    terminal.wait_for("[y]es");
    terminal.type_in("y\n");
    let (code, screen) = terminal.ended();
    assert_eq!(code, 0, "{screen}");
    assert!(outlast.folder.path().join("a.txt").exists());
    assert!(screen.ends_with("done\r\n"), "{screen}");
    assert!(!screen.contains(['⚠', '●']), "{screen}");
}

/// Starts a check of a provider that accepts the connection and never responds, until it is
/// dropped.
fn silent_provider(outlast: &Outlast, more: &[&str]) -> (TcpListener, Command) {
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", provider.local_addr().unwrap());
    let look = ["doctor", "--provider", "openai", "--base-url", &url];
    (provider, outlast.command(&[&look, more].concat()))
}

#[test]
fn slow_command_shows_spinner_and_clears_it() {
    let outlast = Outlast::in_real_time();
    let (provider, command) = silent_provider(&outlast, &[]);
    let mut terminal = Terminal::start(command, Some(Stdio::null()));
    let line = "\r\u{1b}[2K… looking at the files, the settings and the provider (";
    terminal.wait_for(line);
    drop(provider);
    let (code, screen) = terminal.ended();
    assert_eq!(code, 1, "{screen}");
    assert!(screen.ends_with("\r\u{1b}[2K"), "{screen:?}");
    assert!(!screen.contains('\n'), "{screen:?}");
}

#[test]
fn quiet_slow_command_shows_no_spinner() {
    let outlast = Outlast::in_real_time();
    let (provider, command) = silent_provider(&outlast, &["-q"]);
    let mut terminal = Terminal::start(command, Some(Stdio::null()));
    let asked = provider.accept().unwrap();
    // Longer than the delay before the spinner.
    assert_eq!(terminal.said_within(Duration::from_millis(1500)), "");
    drop((asked, provider));
    assert_eq!(terminal.ended(), (1, String::new()));
}

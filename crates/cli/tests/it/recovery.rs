//! Remedies other than waiting, from the command line: another model, another try for a truncated or invalid
//! completion, compaction.

use crate::mock_server::{MockServer, PLANTED};
use crate::support::{CommandResult, NO_TIMEOUTS, Outlast};
use crate::written::{self, LeftAs, answer, completed, prompt, typed};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

const USER: &str = "home/outlast.toml";
const ID: &str = "01900000-0000-7000-8000-000000000001";
const HELLO: &str =
    "Hello from the scripted provider: no network, no key, no cost. You said: Say hello\n";

fn ask(outlast: &Outlast, arguments: &[&str]) -> CommandResult {
    outlast.run(&[&["-p", "Say hello"], arguments].concat())
}

fn events(ran: &CommandResult) -> Vec<Value> {
    let lines = ran.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let of_type = events.iter().filter(|event| event["type"] == kind);
    of_type.collect()
}

/// Returns the text that a reader of the events has at the end, without retracted content.
fn heard(events: &[Value]) -> String {
    let mut text = String::new();
    for event in events {
        match event["type"].as_str().unwrap() {
            "retracted" => text.clear(),
            "text_delta" => text += event["text"].as_str().unwrap(),
            _ => {}
        }
    }
    text
}

/// Replaces the parts of lines that differ between runs: times and delays, and the size of the folder's description.
fn steady(text: &str) -> String {
    let line = |line: &str| {
        let until = line.split_once(" until ").map(|(before, _)| {
            // The length of the delay differs, too.
            let cut = before.rsplit_once(" for ");
            let before = cut.map_or(before.to_owned(), |(before, _)| format!("{before} …"));
            format!("{before} until …\n")
        });
        let cost = line.split_once("cost ");
        let cut = until.or(cost.map(|(before, _)| format!("{before}cost …\n")));
        cut.unwrap_or_else(|| format!("{line}\n"))
    };
    text.lines().map(line).collect()
}

// --- Fallback models ---

#[test]
fn fallbacks_are_tried_in_order_and_switches_reported() {
    let outlast = Outlast {
        // At a faster clock, seconds would pass before a line is printed.
        scale: "60",
        ..Outlast::new()
    };
    let ran = ask(
        &outlast,
        &[
            "--model",
            "overloaded:99",
            "--fallback",
            "error:401,times=always",
            "--fallback",
            "ok:text,times=always",
        ],
    );
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, HELLO),
        "{}",
        ran.stderr
    );
    insta::assert_snapshot!(steady(&ran.stderr), @r"
    ⚠ Server overloaded, retrying in 2s… (1/3, Ctrl-C cancels)
    ⚠ Server overloaded, retrying in 4s… (2/3, Ctrl-C cancels)
    ⚠ Server overloaded: error:401,times=always is asked instead of overloaded:99 … until …
    ⚠ Credential refused: ok:text,times=always is asked instead of error:401,times=always … until …
    ");
}

#[test]
fn model_in_cooldown_is_skipped_unless_chosen() {
    let outlast = Outlast {
        // At a faster clock, minutes would pass between two commands.
        scale: "10",
        ..Outlast::new()
    };
    let chain = ["--model", "overloaded:1", "--fallback", "ok"];
    outlast.write(
        USER,
        "fallback.overload_retries = 0\nfallback.cooldown = \"9h\"\n",
    );
    let first = ask(&outlast, &chain);
    assert_eq!(first.code, 0, "{}", first.stderr);
    // The typed chain of models is kept; a temporary fallback does not become the session's model.
    let next = ask(&outlast, &["--continue"]);
    assert_eq!((next.code, next.stdout.as_str()), (0, HELLO));
    assert_eq!(
        steady(&next.stderr),
        "● ok is asked instead of overloaded:1, until …\n"
    );
    // A model named on the command line overrides the chain.
    let chosen = ask(&outlast, &["--continue", "--model", "overloaded:1"]);
    assert!(
        chosen
            .stderr
            .starts_with("⚠ Server overloaded: ok is asked"),
        "{}",
        chosen.stderr
    );
    let exported = outlast
        .run(&["sessions", "export", "--format", "jsonl"])
        .stdout;
    let prompts = exported
        .lines()
        .filter(|line| line.contains("\"kind\":\"prompt\""));
    let prompts: Vec<&str> = prompts.collect();
    assert_eq!(prompts.len(), 3, "{exported}");
    for line in prompts {
        assert!(line.contains("\"model\":\"overloaded:1\""), "{line}");
        assert!(line.contains("\"fallback.models\":\"ok\""), "{line}");
    }
}

#[test]
fn first_model_is_used_again_after_cooldown() {
    let outlast = Outlast::new();
    outlast.write(
        USER,
        "fallback.overload_retries = 0\nfallback.cooldown = \"1s\"\n",
    );
    outlast.write("notes", "one line\n");
    let fallback = "drip:4000,of=agent,times=always";
    let prompt = "call read {\"path\":\"notes\"}";
    let chain = ["--model", "overloaded:1", "--fallback", fallback];
    let ran = outlast.run(&[&["-p", prompt], &chain[..]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let back = format!("● overloaded:1 is asked again, instead of {fallback}\n");
    assert!(ran.stderr.ends_with(&back), "{}", ran.stderr);
}

#[test]
fn fallback_provider_uses_its_own_base_url_and_key() {
    let (mock, other) = (MockServer::start(), MockServer::start());
    let asked = |mock: &MockServer| -> Vec<String> {
        let log: Value = serde_json::from_str(&mock.requests()).unwrap();
        let requests = log["requests"].as_array().unwrap().iter();
        let model = |request: &Value| request["body"]["model"].as_str().unwrap().to_owned();
        requests.map(model).collect()
    };
    let settings = "fallback.overload_retries = 0\n".to_owned();
    mock.outlast.write(USER, settings + NO_TIMEOUTS);
    let chain = ["--fallback", "error:401", "--fallback", "openai:ok"];
    let mut command = mock.command(
        "anthropic",
        &[&["--model", "overloaded:9"], &chain[..]].concat(),
    );
    let ran = CommandResult::of(command.env("OPENAI_BASE_URL", other.url()));
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, HELLO),
        "{}",
        ran.stderr
    );
    // The typed address belongs to the chosen provider.
    assert_eq!(asked(&mock), ["overloaded:9", "error:401"]);
    assert_eq!(asked(&other), ["ok"]);
    assert!(!ran.stderr.contains(PLANTED), "{}", ran.stderr);
}

#[test]
fn unusable_fallback_is_an_error_before_any_request() {
    let outlast = Outlast::new();
    let table = [
        (
            "anthropic:claude",
            "fallback `anthropic:claude`: no key is set for anthropic; set ANTHROPIC_API_KEY",
        ),
        ("mock:no-such-fault", "fallback `mock:no-such-fault`: "),
        ("antropic:claude", "did you mean `anthropic`?"),
    ];
    for (entry, part) in table {
        let ran = ask(&outlast, &["--model", "ok", "--fallback", entry]);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{entry}");
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    }
    outlast.write(USER, "compaction.model = \"anthropic:claude\"\n");
    let ran = ask(&outlast, &["--model", "ok"]);
    assert_eq!(ran.code, 2);
    let part = "error: compaction.model `anthropic:claude`: no key is set";
    assert!(ran.stderr.starts_with(part), "{}", ran.stderr);
}

#[test]
fn untrusted_project_fallbacks_are_ignored_with_warning() {
    let outlast = Outlast::new();
    let project = "model = \"error:401,times=always\"\nfallback.models = [\"ok\"]\ncompaction.model = \"ok\"\n\
                   [models.\"overloaded:9\"]\nfallback = [\"ok\"]\ncontext_window = 9000\n";
    outlast.write("outlast.toml", project);
    let before = ask(&outlast, &[]);
    assert_eq!((before.code, before.stdout.as_str()), (1, ""));
    let warning = "warning: ignoring compaction.model, fallback.models, models.\"overloaded:9\".fallback in \
                   FOLDER/outlast.toml: the project is not trusted";
    let said = outlast.anonymous(&before.stderr);
    assert!(said.starts_with(warning), "{said}");
    assert_eq!(outlast.run(&["trust"]).code, 0);
    let after = ask(&outlast, &[]);
    assert_eq!(
        (after.code, after.stdout.as_str()),
        (0, HELLO),
        "{}",
        after.stderr
    );
}

#[test]
fn fallback_happens_only_for_configured_failures() {
    let outlast = Outlast::new();
    let chain = ["--model", "ok:refusal,times=always", "--fallback", "ok"];
    let ran = ask(&outlast, &chain);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, HELLO));
    let said = "⚠ Refused by a content filter: ok is asked instead of ok:refusal,times=always\n";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    outlast.write(USER, "fallback.on = [\"overload\"]\n");
    let ran = ask(&outlast, &chain);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.starts_with("error: Refused by a content filter"));
}

// --- Truncated completions ---

#[test]
fn truncated_completion_is_never_printed_twice() {
    let table: [(&str, i32, &[&str]); 3] = [
        ("retract", 0, &["retracted", "billed_twice"]),
        ("continue", 0, &["seam", "billed_twice"]),
        ("fail", 1, &["error"]),
    ];
    for (what, code, kinds) in table {
        let arguments = ["--model", "drop-after:5", "--after-content", what];
        let ran = ask(&Outlast::new(), &arguments);
        let said = if code == 0 { HELLO } else { "" };
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (code, said),
            "{what}: {}",
            ran.stderr
        );
        let ran = ask(&Outlast::new(), &[&arguments[..], &["--json"]].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (code, ""), "{what}");
        let events = events(&ran);
        for kind in kinds {
            assert_eq!(of_type(&events, kind).len(), 1, "{what} {kind}");
        }
        if code == 0 {
            assert_eq!(heard(&events), HELLO.trim_end(), "{what}");
        }
    }
}

#[test]
fn truncated_completion_handling_is_reported_on_stderr() {
    let said = |what| {
        let arguments = ["--model", "drop-after:5", "--after-content", what];
        steady(&ask(&Outlast::new(), &arguments).stderr)
    };
    insta::assert_snapshot!(said("retract"), @r"
    ⚠ Connection failed, retrying in 2s… (1/3, Ctrl-C cancels)
    ⚠ what had to be asked for again cost …
    ");
    insta::assert_snapshot!(said("continue"), @r"
    ⚠ Connection failed, retrying in 2s… (1/3, Ctrl-C cancels)
    ● the answer goes on where it broke off (as the model was asked to)
    ⚠ what had to be asked for again cost …
    ");
    insta::assert_snapshot!(said("fail"), @r"
    error: Connection failed: connection reset by peer: part of the answer was already delivered; a retry would repeat it
      hint: nothing of the answer was printed; --after-content retract asks again by itself
    ");
}

// --- Invalid completions ---

#[test]
fn invalid_completion_is_corrected_unless_disabled() {
    let outlast = Outlast::new();
    let arguments = ["--model", "ok:announced"];
    let ran = ask(&outlast, &arguments);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(
        ran.stderr,
        "⚠ the model said what it will do next, and did not do it: the model is told so (1/3)\n"
    );
    outlast.write(USER, "recovery.retry_unusable_responses = false\n");
    let ran = ask(&outlast, &arguments);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(ran.stdout.contains("I will now"), "{}", ran.stdout);
}

#[test]
fn refusal_fails_and_output_limit_warns_once() {
    let refused = ask(&Outlast::new(), &["--model", "ok:refusal"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
    assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    let cut = ask(&Outlast::new(), &["--model", "ok:length"]);
    assert_eq!(cut.code, 0);
    assert!(HELLO.starts_with(cut.stdout.trim_end()), "{}", cut.stdout);
    assert_eq!(
        cut.stderr,
        "warning: the answer reached the output limit and is incomplete\n  hint: `max_tokens` raises the output limit\n"
    );
}

// --- Compaction ---

#[test]
fn manual_compaction_shrinks_conversation() {
    for arguments in [
        &["-p", "/compact the parser", "--session", ID][..],
        &["-p", "/compact", "--continue"],
        &["sessions", "compact", "0190", "--focus", "the parser"],
    ] {
        let outlast = Outlast::new();
        outlast.write(USER, "compaction.keep = 1000\n");
        written::long_session(&outlast, ID, "ok:agent,times=always");
        let ran = outlast.run(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
        let [first, last] = ran.stderr.lines().collect::<Vec<_>>()[..] else {
            panic!("{}", ran.stderr);
        };
        assert!(
            first.starts_with("● making the conversation of about"),
            "{first}"
        );
        let numbers = last.split(' ').filter_map(|word| word.parse::<u64>().ok());
        let [before, after] = numbers.collect::<Vec<_>>()[..] else {
            panic!("{last}");
        };
        assert!(before > 10_000 && after < before / 2, "{last}");
        let begin = format!(
            "The conversation of session {ID} was made smaller, from about {before} to about {after} tokens."
        );
        assert_eq!(last, begin);
        let shown = outlast.run(&["sessions", "show"]).stdout;
        assert!(shown.contains("Summary of 5 messages."), "{shown}");
        // No request was sent, and the session can be resumed.
        let listed = outlast.run(&["sessions", "list"]).stdout;
        assert!(listed.contains("  finished        3  "), "{listed}");
        let next = ask(&outlast, &["--continue"]);
        assert_eq!(next.code, 0, "{}", next.stderr);
    }
}

#[test]
fn compaction_with_json_prints_its_events() {
    let outlast = Outlast::new();
    written::long_session(&outlast, ID, "ok:agent,times=always");
    let ran = outlast.run(&["-p", "/compact", "--continue", "--json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let events = events(&ran);
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["auto_compaction_started", "auto_compaction_ended"]);
    assert_eq!(events[1]["reason"], "manual");
    assert!(events[1]["after"].as_u64() < events[1]["before"].as_u64());
}

#[test]
fn failed_compaction_leaves_conversation_unchanged() {
    let outlast = Outlast::new();
    let none = outlast.run(&["sessions", "compact", ID]);
    assert_eq!(
        (none.code, none.stderr.as_str()),
        (
            2,
            "error: there is no session yet; `outlast -p \"…\"` begins one\n"
        )
    );
    let new = outlast.run(&["-p", "/compact"]);
    assert_eq!(new.code, 2);
    assert!(
        new.stderr.contains("--session ID, or --continue"),
        "{}",
        new.stderr
    );

    let turn = vec![prompt("What?", typed("ok")), answer("That."), completed()];
    written::session(&outlast, ID, &[turn], LeftAs::Free);
    let before = outlast
        .run(&["sessions", "export", "--format", "jsonl"])
        .stdout;
    let short = outlast.run(&["sessions", "compact", ID]);
    assert_eq!((short.code, short.stdout.as_str()), (1, ""));
    let error = short.stderr.lines().last().unwrap();
    assert!(
        error.starts_with("error: the conversation is as it was: "),
        "{error}"
    );
    let after = outlast
        .run(&["sessions", "export", "--format", "jsonl"])
        .stdout;
    assert_eq!(after, before);
}

#[cfg(unix)]
#[test]
fn cancelled_compaction_leaves_conversation_unchanged() {
    let outlast = Outlast {
        scale: "1",
        ..Outlast::new()
    };
    written::long_session(&outlast, ID, "hold:3600,of=agent,times=always");
    let export = || {
        let ran = outlast.run(&["sessions", "export", "--format", "jsonl"]);
        ran.stdout
    };
    let before = export();
    let mut child = outlast
        .command(&["-p", "/compact", "--session", ID])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut first = String::new();
    stderr.read_line(&mut first).unwrap();
    assert!(first.starts_with("● making the conversation"), "{first}");
    let id = child.id().to_string();
    let kill = Command::new("kill").args(["-INT", &id]).status();
    assert!(kill.unwrap().success());
    let mut ran = CommandResult::ended(child);
    stderr.read_to_string(&mut ran.stderr).unwrap();
    assert_eq!((ran.code, ran.stdout.as_str()), (130, ""));
    assert_eq!(ran.stderr, "Cancelled: the conversation is as it was.\n");
    assert_eq!(export(), before);
}

#[test]
fn compaction_is_refused_while_turn_is_unfinished() {
    let outlast = Outlast::new();
    let turn = vec![prompt("What?", typed("ok"))];
    written::session(&outlast, ID, &[turn], LeftAs::Abandoned);
    for arguments in [
        &["-p", "/compact", "--continue"][..],
        &["sessions", "compact", ID],
    ] {
        let ran = outlast.run(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
        assert!(
            ran.stderr
                .contains(&format!("`outlast resume {ID}` carries it on")),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn overflow_triggers_compaction_unless_disabled() {
    let outlast = Outlast::new();
    written::long_session(&outlast, ID, "window:6000,of=agent");
    let ran = ask(&outlast, &["--session", ID]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stdout.ends_with("You said: Say hello\n"),
        "{}",
        ran.stdout
    );
    let started = "tokens smaller: it is more than the model can read\n";
    assert!(ran.stderr.contains(started), "{}", ran.stderr);
    assert!(
        ran.stderr
            .contains("● the conversation was made smaller, from about ")
    );

    let outlast = Outlast::new();
    outlast.write(USER, "compaction.enabled = false\n");
    written::long_session(&outlast, ID, "window:6000,of=agent");
    let ran = ask(&outlast, &["--session", ID]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(
        ran.stderr.starts_with("error: Context window exceeded"),
        "{}",
        ran.stderr
    );
}

#[test]
fn configured_window_triggers_compaction_before_overflow() {
    let outlast = Outlast::new();
    let model = "window:12000,of=agent";
    outlast.write(
        USER,
        format!("[models.\"{model}\"]\ncontext_window = 12000\n"),
    );
    written::long_session(&outlast, ID, model);
    let ran = ask(&outlast, &["--session", ID]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let said = "tokens smaller: it comes close to what the model can read\n";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
}

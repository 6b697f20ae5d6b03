//! Continuing a session, and `outlast sessions`: finding, showing, exporting and deleting.

use crate::mock_server::{MockServer, PLANTED};
use crate::support::{CommandResult, Outlast};
use crate::written::{self, LeftAs, answer, completed, prompt, typed};
use serde_json::Value;
use std::fs;

const FIRST: &str = "01900000-0000-7000-8000-000000000001";
const SECOND: &str = "01900000-0000-7000-8000-000000000002";
const HELLO: &str = "Hello from the scripted provider: no network, no key, no cost. You said:";

/// Returns the listed sessions: id, state, turns.
fn listed(outlast: &Outlast) -> Vec<(String, String, u64)> {
    let ran = outlast.run(&["sessions", "list", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let rows: Value = serde_json::from_str(&ran.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let row = |row: &Value| {
        let turns = row["turns"].as_u64().unwrap();
        (text(&row["id"]), text(&row["state"]), turns)
    };
    rows.as_array().unwrap().iter().map(row).collect()
}

/// Creates two finished sessions with old timestamps.
fn two_sessions(outlast: &Outlast) {
    for id in [FIRST, SECOND] {
        let turn = vec![prompt("What?", typed("ok")), answer("That."), completed()];
        written::session(outlast, id, &[turn], LeftAs::Free);
    }
}

// --- Continuing ---

#[test]
fn continued_prompt_keeps_model_and_history() {
    let mock = MockServer::start();
    let outlast = &mock.outlast;
    assert_eq!(mock.ask("openai", &["--model", "ok"]).code, 0);
    let id = listed(outlast)[0].0.clone();
    // The provider and the model need not be typed again.
    for arguments in [
        ["-p", "Second", "--continue"].as_slice(),
        &["-p", "Third", "--session", &id[..8]],
    ] {
        let mut command = outlast.command(arguments);
        let ran = CommandResult::of(command.env("OPENAI_API_KEY", PLANTED));
        let said = format!("{HELLO} {}\n", arguments[1]);
        assert_eq!((ran.code, ran.stdout), (0, said), "{}", ran.stderr);
    }
    assert_eq!(listed(outlast), [(id, "finished".to_owned(), 3)]);
    let log: Value = serde_json::from_str(&mock.requests()).unwrap();
    let messages = log["requests"][2]["body"]["messages"].as_array().unwrap();
    let messages = messages
        .iter()
        .filter(|message| message["role"] != "system");
    let said: Vec<&str> = messages
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    let answers = ["Say hello", "Second"].map(|text| format!("{HELLO} {text}"));
    let expected = ["Say hello", &answers[0], "Second", &answers[1], "Third"];
    assert_eq!(said, expected);
}

#[test]
fn continue_uses_last_session_of_folder() {
    let outlast = Outlast::new();
    outlast.write("elsewhere/file", "");
    let ask = |folder: &str, arguments: &[&str]| {
        let mut command = outlast.command(arguments);
        CommandResult::of(command.current_dir(outlast.folder.path().join(folder)))
    };
    let none = ask("", &["-p", "x", "--continue"]);
    assert_eq!(
        (none.code, none.stderr.as_str()),
        (
            2,
            "error: there is no session yet; `outlast -p \"…\"` begins one\n"
        )
    );
    for text in ["first", "second"] {
        assert_eq!(ask("", &["-p", text, "--model", "ok"]).code, 0);
    }
    let second = listed(&outlast)[0].0.clone();
    let none = ask("elsewhere", &["-p", "x", "--continue", "--model", "ok"]);
    assert_eq!((none.code, none.stdout.as_str()), (2, ""));
    let said = outlast.anonymous(&none.stderr);
    assert_eq!(
        said,
        "error: there is no session that began in FOLDER/elsewhere; `outlast sessions list` shows all\n"
    );
    assert_eq!(ask("elsewhere", &["-p", "third", "--model", "ok"]).code, 0);
    assert_eq!(ask("", &["-p", "fourth", "--continue"]).code, 0);
    let (last, _, turns) = listed(&outlast).swap_remove(0);
    assert_eq!((last, turns), (second, 2));
}

#[test]
fn unknown_or_ambiguous_session_id_is_an_error() {
    let outlast = Outlast::new();
    two_sessions(&outlast);
    let before = listed(&outlast);
    for (name, says) in [
        (
            "0190",
            "2 sessions begin with `0190`; give more of the name",
        ),
        (
            "zz",
            "there is no session zz; `outlast sessions list` shows all",
        ),
        (
            "",
            "the name of a session is empty; `outlast sessions list` shows all",
        ),
    ] {
        for arguments in [
            vec!["-p", "x", "--model", "ok", "--session", name],
            vec!["resume", name],
            vec!["sessions", "show", name],
            vec!["sessions", "export", name],
            vec!["sessions", "delete", FIRST, name],
        ] {
            let ran = outlast.run(&arguments);
            let said = format!("error: {says}\n");
            assert_eq!(
                (ran.code, ran.stdout, ran.stderr),
                (2, String::new(), said),
                "{arguments:?}"
            );
        }
    }
    assert_eq!(listed(&outlast), before);
}

#[test]
fn prompt_in_unfinished_session_requires_resume() {
    let outlast = Outlast::new();
    let turns = [vec![prompt("What?", typed("ok"))]];
    written::session(&outlast, FIRST, &turns, LeftAs::Abandoned);
    let says = format!(
        "the last turn of session {FIRST} is not finished; `outlast resume {FIRST}` carries it on"
    );
    for arguments in [["--continue"].as_slice(), &["--session", FIRST]] {
        let ran = outlast.run(&[&["-p", "x", "--model", "ok"], arguments].concat());
        assert_eq!((ran.code, ran.stderr), (2, format!("error: {says}\n")));
    }
    let ran = outlast.run(&["-p", "x", "--model", "ok"]);
    let said = "1 earlier turn is not finished: `outlast resume` carries on.\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (0, said));
}

#[test]
fn no_session_flag_writes_no_journal_and_rejects_continue() {
    let outlast = Outlast::new();
    let ran = outlast.run(&["-p", "x", "--model", "ok", "--no-session"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(!outlast.home().join("sessions.db").exists());
    for further in [["--continue"].as_slice(), &["--session", "0"]] {
        let ran = outlast.run(&[&["-p", "x", "--no-session"], further].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
        assert!(ran.stderr.contains("cannot be used with"), "{}", ran.stderr);
    }
}

// --- Showing ---

#[test]
fn hostile_text_is_escaped_in_terminal_and_exports() {
    let outlast = Outlast::new();
    let hostile =
        "\u{1b}]0;gone\u{7}<script>alert(1)</script>\u{9b}2J\n# Turn 99\n```\n=== Turn 99 ===";
    let turn = vec![prompt(hostile, typed("ok")), answer(hostile), completed()];
    written::session(&outlast, FIRST, &[turn], LeftAs::Free);
    assert_eq!(outlast.run(&["-p", hostile, "--model", "ok"]).code, 0);
    let run = |arguments: &[&str]| {
        let ran = outlast.run(arguments);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{arguments:?}");
        assert!(
            !ran.stdout.contains(['\u{1b}', '\u{7}', '\u{9b}']),
            "{arguments:?}: {:?}",
            ran.stdout
        );
        ran.stdout
    };
    assert_eq!(run(&["sessions", "list"]).lines().count(), 2);
    run(&["sessions", "list", "--json"]);
    let newest = listed(&outlast)[0].0.clone();
    for id in [FIRST, &newest] {
        // Only the document's own text begins a line; quoted messages do not.
        let begins = |text: &str, line: &str| text.lines().any(|it| it.starts_with(line));
        let shown = run(&["sessions", "show", id]);
        assert!(
            begins(&shown, "=== Turn 1 ===") && !begins(&shown, "=== Turn 99"),
            "{shown}"
        );
        let markdown = run(&["sessions", "export", id]);
        assert!(markdown.contains("alert(1)"), "{markdown}");
        let page = run(&["sessions", "export", id, "--format", "html"]);
        assert!(
            page.contains("&lt;script&gt;") && !page.contains("<script"),
            "{page}"
        );
        let lines = run(&["sessions", "export", id, "--format", "jsonl"]);
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<Value> = lines.collect();
        // The format for programs is complete.
        assert_eq!(lines[1]["message"]["parts"][0]["text"], hostile);
    }
}

// --- Deleting ---

#[test]
fn delete_works_by_id_and_by_age_of_finished_sessions() {
    const THIRD: &str = "01900000-0000-7000-8000-000000000003";
    let outlast = Outlast::new();
    two_sessions(&outlast);
    let turns = [vec![prompt("What?", typed("ok"))]];
    written::session(&outlast, THIRD, &turns, LeftAs::Free);
    assert_eq!(outlast.run(&["-p", "new", "--model", "ok"]).code, 0);
    let new = listed(&outlast)[0].0.clone();
    let ran = outlast.run(&["sessions", "delete", FIRST]);
    assert_eq!((ran.code, ran.stderr), (0, format!("Deleted {FIRST}.\n")));
    let ran = outlast.run(&["sessions", "delete", "--older-than", "30d"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, "Deleted 1.\n"));
    let left: Vec<String> = listed(&outlast).into_iter().map(|(id, ..)| id).collect();
    assert_eq!(left, [new.as_str(), THIRD]);
    let ran = outlast.run(&["sessions", "delete", &new, THIRD]);
    assert_eq!(ran.stderr, format!("Deleted {new}.\nDeleted {THIRD}.\n"));
    assert!(listed(&outlast).is_empty());
    for wrong in [
        ["--older-than", "soon"].as_slice(),
        &["--older-than", "1d", FIRST],
        &[],
    ] {
        let ran = outlast.run(&[&["sessions", "delete"], wrong].concat());
        assert_eq!(ran.code, 2, "{wrong:?}: {}", ran.stderr);
    }
}

// --- Broken files ---

#[test]
fn damaged_sessions_file_is_replaced_only_by_prompt() {
    let outlast = Outlast::new();
    assert_eq!(outlast.run(&["-p", "x", "--model", "ok"]).code, 0);
    let file = outlast.home().join("sessions.db");
    fs::remove_file(outlast.home().join("sessions.db-wal")).ok();
    fs::write(&file, "no database").unwrap();
    for arguments in [
        ["resume"].as_slice(),
        &["resume", FIRST],
        &["sessions", "list"],
        &["sessions", "show"],
        &["sessions", "delete", FIRST],
        &["-p", "x", "--continue"],
    ] {
        let ran = outlast.run(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{arguments:?}");
        assert!(
            ran.stderr
                .contains("sessions.db cannot be read; nothing was changed"),
            "{}",
            ran.stderr
        );
        assert_eq!(fs::read(&file).unwrap(), b"no database");
    }
    let ran = outlast.run(&["-p", "x", "--model", "ok"]);
    let said = outlast.anonymous(&ran.stderr);
    // The new turn succeeds and is recorded, but the earlier content is lost.
    assert_eq!((ran.code, ran.stdout), (4, format!("{HELLO} x\n")));
    assert_eq!(
        said,
        "warning: the sessions are damaged; they are kept as FOLDER/home/sessions.db.damaged-1, and a new file is begun; \
         `sqlite3 FILE .recover` reads what is whole\n"
    );
    let resumed = outlast.run(&["resume"]);
    assert!(
        resumed.stderr.contains("sessions.db.damaged-1"),
        "{}",
        resumed.stderr
    );
    let aside = outlast.home().join("sessions.db.damaged-1");
    assert_eq!(fs::read(aside).unwrap(), b"no database");
    assert_eq!(listed(&outlast).len(), 1);
}

#[test]
fn prompt_without_writable_journal_succeeds_with_warning() {
    let outlast = Outlast::new();
    outlast.write("file", "");
    outlast.write("taken/VERSION", "1\n");
    outlast.write("taken/sessions.db/file", "");
    // The folder is missing and cannot be made, or something else has the name of the file.
    for home in ["file/home", "taken"] {
        let mut command = outlast.command(&["-p", "x", "--model", "ok"]);
        let ran = CommandResult::of(command.env("OUTLAST_HOME", outlast.folder.path().join(home)));
        assert_eq!(
            (ran.code, ran.stdout),
            (4, format!("{HELLO} x\n")),
            "{}",
            ran.stderr
        );
        let warning = "warning: this session cannot be written down, and could not be carried on after a crash:";
        assert!(ran.stderr.contains(warning), "{home}: {}", ran.stderr);
        // Without a session nothing is missing.
        let mut command = outlast.command(&["-p", "x", "--model", "ok", "--no-session"]);
        let ran = CommandResult::of(command.env("OUTLAST_HOME", outlast.folder.path().join(home)));
        assert_eq!(
            (ran.code, ran.stdout),
            (0, format!("{HELLO} x\n")),
            "{}",
            ran.stderr
        );
    }
}

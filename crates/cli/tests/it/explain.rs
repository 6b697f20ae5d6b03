//! `outlast explain`: verdicts as text and as JSON lines, and the score on the corpus.

use crate::support::{CommandResult, Outlast};
use serde_json::Value;
use std::path::PathBuf;

fn project(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn explain_stdin(input: &str) -> CommandResult {
    Outlast::new().run_with_stdin(&["explain", "--jsonl"], input)
}

/// How well the verdicts for a labelled file agree with its labels.
#[derive(Debug, Default, PartialEq, Eq)]
struct Score {
    lines: usize,
    class: usize,
    retryable: usize,
    false_retries: Vec<String>,
    waits: usize,
    waits_met: usize,
}

fn score(file: &str) -> Score {
    let path = project(file);
    let ran = Outlast::new().run(&["explain", "--jsonl", path.to_str().unwrap()]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let labels = lines(&std::fs::read_to_string(path).unwrap());
    let answers = lines(&ran.stdout);
    assert_eq!(answers.len(), labels.len());
    let mut score = Score {
        lines: labels.len(),
        ..Score::default()
    };
    for (label, answer) in labels.iter().zip(&answers) {
        assert_eq!(label["id"], answer["id"]);
        let expected = &label["expect"];
        let also = expected["also_accept"].as_array().into_iter().flatten();
        let accepted = std::iter::once(&expected["class"])
            .chain(also)
            .any(|class| *class == answer["class"]);
        score.class += usize::from(accepted);
        score.retryable += usize::from(expected["retryable"] == answer["retryable"]);
        if answer["retryable"] == true && expected["retryable"] == false {
            score.false_retries.push(label["id"].to_string());
        }
        if let Some(stated) = expected["retry_after_ms"].as_u64() {
            score.waits += 1;
            let near = |read: u64| read.abs_diff(stated) <= 1000.max(stated / 100);
            score.waits_met += usize::from(answer["retry_after_ms"].as_u64().is_some_and(near));
        }
    }
    score
}

fn percent(part: usize, whole: usize) -> String {
    let tenths = (part * 1000 + whole / 2) / whole;
    format!("{}.{} %", tenths / 10, tenths % 10)
}

#[test]
fn corpus_score_meets_targets_and_matches_readme() {
    let score = score("corpus/errors.jsonl");
    assert_eq!(score.lines, 180);
    assert!(score.class * 100 >= score.lines * 97, "{score:?}");
    assert!(score.retryable * 100 >= score.lines * 98, "{score:?}");
    assert_eq!(score.false_retries, [""; 0]);
    assert_eq!(score.waits_met, score.waits, "{score:?}");
    let published = format!(
        "| {} | {} | {} | {} of {} |",
        percent(score.class, score.lines),
        percent(score.retryable, score.lines),
        score.false_retries.len(),
        score.waits_met,
        score.waits
    );
    let readme = std::fs::read_to_string(project("README.md")).unwrap();
    assert!(
        readme.contains(&published),
        "README.md should say: {published}"
    );
}

#[test]
fn reworded_conditions_meet_score_targets() {
    let score = score("corpus/conditions.jsonl");
    assert!(score.class * 100 >= score.lines * 98, "{score:?}");
    assert!(score.retryable * 100 >= score.lines * 99, "{score:?}");
    assert_eq!(score.false_retries, [""; 0]);
    assert_eq!(score.waits_met, score.waits, "{score:?}");
}

#[test]
fn explain_prints_verdict_as_text() {
    let ran = Outlast::new().run(&[
        "explain",
        "--provider",
        "openai",
        "--status",
        "429",
        "--body",
        r#"{"error":{"message":"Rate limit reached. Please try again in 6m0s.","code":"rate_limit_exceeded"}}"#,
        "--now",
        "2026-11-15T22:00:00Z",
        "--policy",
        "overnight",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    insta::assert_snapshot!(ran.stdout, @r"
    cause      rate_limited: Rate limited
    class      transient: it can pass by itself
    concerns   everyone who uses this credential
    retryable  yes, not before 2026-11-15T22:06:00.000Z (6m)
    action     retry after or backoff
    policy     overnight: wait 6m (until 2026-11-15T22:06:00.000Z), then try again
    evidence   text says a rate limit; the time comes from text
    ");
}

#[test]
fn explain_prints_verdict_as_json() {
    let ran = Outlast::new().run(&[
        "explain",
        "--json",
        "--status",
        "529",
        "--header",
        "Retry-After: 7",
    ]);
    insta::assert_snapshot!(ran.stdout, @r#"{"action":"retry_long_backoff_then_fallback_model","cause":"overloaded","class":"overloaded","evidence":["status: 529","wait: retry-after"],"failure_class":"transient","id":null,"retry_after_ms":7000,"retryable":true,"scope":"model"}"#);
}

#[test]
fn invalid_line_is_reported_with_number_and_skipped() {
    let input = "{\"id\":\"a\",\"status\":529}\nnot json\n\n{\"id\":\"b\",\"status\":\"many\"}\n{\"id\":\"c\",\"now\":\"noon\"}\n\
                 {\"id\":\"d\",\"transport\":\"thrown\",\"body\":\"read ECONNRESET\"}";
    let ran = explain_stdin(input);
    assert_eq!(ran.code, 1);
    let answers = lines(&ran.stdout);
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(
        ids,
        ["a", "", "", "", "d"]
            .map(|id| if id.is_empty() {
                Value::Null
            } else {
                Value::from(id)
            })
            .iter()
            .collect::<Vec<_>>()
    );
    let numbers: Vec<Option<u64>> = answers
        .iter()
        .map(|answer| answer["line"].as_u64())
        .collect();
    assert_eq!(numbers, [None, Some(2), Some(4), Some(5), None]);
    assert!(
        answers[1]["error"]
            .as_str()
            .unwrap()
            .starts_with("line 2: ")
    );
}

#[test]
fn overlong_line_is_one_error_and_next_line_is_read() {
    let long = " ".repeat(4 << 20) + "{\"id\":\"injected\",\"status\":529}";
    let ran = explain_stdin(&format!("{long}\n{{\"id\":\"after\",\"status\":529}}\n"));
    let answers = lines(&ran.stdout);
    assert_eq!((ran.code, answers.len()), (1, 2));
    assert_eq!(
        (&answers[0]["line"], &answers[1]["id"]),
        (&Value::from(1), &Value::from("after"))
    );
}

#[test]
fn key_in_invalid_line_is_not_echoed() {
    let ran = explain_stdin("{\"status\":\"sk-test-0123456789abcdef0123\"}");
    assert!(!ran.stdout.contains("0123456789abcdef"), "{}", ran.stdout);
}

#[test]
fn now_fixes_the_clock_and_its_zone() {
    let ran = explain_stdin(
        "{\"transport\":\"thrown\",\"body\":\"5-hour limit reached, resets 5am\",\"now\":\"2025-08-23T03:00:00-04:00\"}",
    );
    let answer = &lines(&ran.stdout)[0];
    assert_eq!(
        (&answer["class"], &answer["retry_after_ms"]),
        (&Value::from("usage_limit"), &Value::from(7_200_000))
    );
}

#[test]
fn bad_flags_are_usage_errors() {
    let table: [&[&str]; 5] = [
        &["explain"],
        &["explain", "--status", "many"],
        &["explain", "--status", "429", "--header", "no colon"],
        &["explain", "--status", "429", "--now", "noon"],
        &["explain", "--status", "429", "--policy", "nope"],
    ];
    for arguments in table {
        let ran = Outlast::new().run(arguments);
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (2, ""),
            "{arguments:?}: {}",
            ran.stderr
        );
        assert!(ran.stderr.starts_with("error:"), "{}", ran.stderr);
    }
}

#[test]
fn escapes_in_an_error_do_not_reach_the_terminal() {
    let ran = Outlast::new().run(&[
        "explain",
        "--status",
        "400",
        "--body",
        "{\"error\":{\"code\":\"x\u{1b}[2J_error\"}}",
    ]);
    assert!(!ran.stdout.contains('\u{1b}'));
}

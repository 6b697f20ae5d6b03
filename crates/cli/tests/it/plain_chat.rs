//! The chat line by line, as a screen reader reads it.

use crate::support::Outlast;

fn chat(arguments: &[&str], lines: &str) -> String {
    let outlast = Outlast::new();
    let arguments = [&["--plain"], arguments].concat();
    let ran = outlast.run_with_stdin(&arguments, lines);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran.stdout
}

#[test]
fn every_message_and_answer_is_written_once_in_every_session() {
    let written = chat(
        &["--model", "ok"],
        "first\n/retry\nsecond\n/new\nthird\nfourth\n",
    );
    let expected = ["You: first", "You: second", "You: third", "You: fourth"];
    let said: Vec<&str> = written
        .lines()
        .filter(|line| line.starts_with("You: "))
        .collect();
    assert_eq!(said, expected, "{written}");
    assert_eq!(written.matches("Outlast. Say what").count(), 2, "{written}");
    for word in ["first", "second", "third", "fourth"] {
        let answer = format!("You said: {word}\n");
        assert_eq!(written.matches(&answer).count(), 1, "{written}");
    }
}

#[test]
fn an_answer_that_broke_off_is_told_once_and_then_comes_whole() {
    let written = chat(&["--model", "drop-after:5"], "hello\n");
    assert_eq!(written.matches("broke off").count(), 1, "{written}");
    assert_eq!(written.matches("Hello from the").count(), 1, "{written}");
}

#[test]
fn after_a_call_that_broke_off_all_else_is_written() {
    let script = [
        "--model",
        "drop-after:12,of=tools",
        "--after-content",
        "fail",
    ];
    let written = chat(&script, "first\nsecond\n");
    assert!(written.contains("Tool: "), "{written}");
    assert!(written.contains("You said: second\n"), "{written}");
}

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
fn plain_chat_prints_each_message_and_completion_once() {
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
fn cut_completion_is_reported_once_then_printed_in_full() {
    let written = chat(&["--model", "drop-after:5"], "hello\n");
    assert_eq!(written.matches("broke off").count(), 1, "{written}");
    assert_eq!(written.matches("Hello from the").count(), 1, "{written}");
}

#[test]
fn later_messages_are_printed_after_cut_tool_call() {
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

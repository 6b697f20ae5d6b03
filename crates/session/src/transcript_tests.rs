use super::*;
use outlast_dialect::{Image, Message, Part, Role};
use outlast_engine::inbox::QueueKind;
use outlast_engine::journal::{Entry, Spent, TurnError};
use outlast_engine::tools::Effect;
use outlast_kernel::budget::{Limits, Prompt};
use outlast_kernel::event::{Proof, Reasoning, StopReason, ToolCall, TurnStatus, Usage};
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use outlast_kernel::verdict::Cause;
use outlast_store::journal::RawEntry;
use serde_json::Value;
use std::time::Duration;

#[path = "transcript_tests/outside.rs"]
mod outside;

const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const FORMATS: [Format; 4] = [Format::Jsonl, Format::Markdown, Format::Html, Format::Plain];

// --- A session ---

/// Entries as the journal has them, one a second.
#[derive(Default)]
struct Session {
    turn: u64,
    stored: Vec<StoredEntry>,
}

impl Session {
    fn now(&self) -> Timestamp {
        START + Duration::from_secs(self.stored.len() as u64)
    }

    fn raw(&mut self, kind: &str, body: &str) -> &mut Self {
        let entry = RawEntry {
            turn: self.turn,
            kind: kind.to_owned(),
            time: self.now(),
            body: body.to_owned(),
        };
        let seq = self.stored.len() as u64 + 1;
        self.stored.push(StoredEntry { seq, entry });
        self
    }

    fn add(&mut self, entry: &Entry) -> &mut Self {
        let body = serde_json::to_string(entry).unwrap();
        self.raw(entry.kind(), &body)
    }

    fn prompt(&mut self, message: Option<Message>) -> &mut Self {
        self.turn += 1;
        self.add(&Entry::Prompt {
            chosen: false,
            turn_id: "t".to_owned(),
            message,
            budget: Prompt::new(Limits::default()),
            options: Value::Null,
        })
    }

    fn answer(&mut self, model: &str, parts: Vec<Part>) -> &mut Self {
        self.add(&Entry::Message {
            message: assistant(parts),
            stop_reason: StopReason::EndTurn,
            usage: Usage::default(),
            model: model.to_owned(),
        })
    }

    fn failed(&mut self, failure: Option<Failure>, parts: Vec<Part>) -> &mut Self {
        self.add(&Entry::AttemptFailed {
            kept: false,
            place: None,
            attempt: 1,
            judged: failure.map(|failure| (*ClassifiedFailure::new(failure)).clone()),
            message: assistant(parts),
            usage: Usage::default(),
        })
    }

    fn wait(&mut self, seconds: u64) -> &mut Self {
        let since = self.now();
        self.add(&Entry::WaitScheduled {
            since,
            until: since + Duration::from_secs(seconds),
            cause: Cause::RateLimited,
            spent: Spent::default(),
        })
    }

    fn waited(&mut self) -> &mut Self {
        let spent = Spent::default();
        self.add(&Entry::WaitEnded { spent })
    }

    fn tool(&mut self, output: &str, is_error: bool) -> &mut Self {
        let id = "call-1".to_owned();
        self.tool_started().add(&Entry::ToolFinished {
            index: 0,
            id,
            output: output.to_owned(),
            is_error,
        })
    }

    fn tool_started(&mut self) -> &mut Self {
        self.add(&Entry::ToolStarted {
            index: 0,
            id: "call-1".to_owned(),
            effect: Effect::AtMostOnce,
        })
    }

    fn settled(&mut self, seal: TurnStatus, error: Option<TurnError>) -> &mut Self {
        let usage = Usage {
            input: 1200,
            output: 34,
            cache_read: 5,
            cache_write: 6,
        };
        self.add(&Entry::Settled { seal, usage, error })
    }

    fn document(&self, format: Format, head: &Header) -> String {
        let mut writer = Writer::new(format, head, Vec::new()).unwrap();
        for stored in &self.stored {
            writer.entry(stored).unwrap();
        }
        String::from_utf8(writer.finish().unwrap()).unwrap()
    }

    fn plain(&self) -> String {
        self.document(Format::Plain, &head_of("A title"))
    }
}

fn assistant(parts: Vec<Part>) -> Message {
    let role = Role::Assistant;
    Message { role, parts }
}

fn spoken(text: &str) -> Part {
    let text = text.to_owned();
    Part::Text { text }
}

fn thought(text: &str, signature: &str) -> Part {
    let signature = signature.to_owned();
    Part::Reasoning(Reasoning {
        text: text.to_owned(),
        proof: Some(Proof::Signature { signature }),
        ..Reasoning::default()
    })
}

fn call(name: &str, arguments: &str) -> Part {
    Part::ToolCall(ToolCall {
        id: "call-1".to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    })
}

fn picture(media_type: &str, data: &str) -> Part {
    Part::Image(Image {
        media_type: media_type.to_owned(),
        data: data.to_owned(),
    })
}

fn head_of(title: &str) -> Header {
    Header {
        id: "0192-abc".to_owned(),
        title: title.to_owned(),
        directory: "/home/me/my_project".to_owned(),
        created: START,
    }
}

/// A session in which most kinds of entries occur.
fn eventful() -> Session {
    let mut session = Session::default();
    let mut question = Message::user("What is in `main.rs`?\n\nBe *short*.");
    question.parts.push(picture("image/png", "aGVsbG8="));
    let limited = Failure::http("p", 429, "slow down\nplease", START);
    let gave_up = TurnError {
        cause: Cause::Overloaded,
        message: "Overloaded".to_owned(),
        reason: "gave up after 3 retries".to_owned(),
    };
    let reads = call("read_file", r#"{"path":"main.rs"}"#);
    let code = "```rust\nfn main() {}\n```\n1\n2\n3\n4\n5\n";
    session
        .prompt(Some(question))
        .add(&Entry::AttemptStarted { attempt: 1 })
        .failed(Some(limited), vec![spoken("It has")])
        .wait(1)
        .waited()
        .add(&Entry::Switched {
            model: None,
            left: Some("work".to_owned()),
            spent: Spent::default(),
        })
        .answer("large-1", vec![thought("I shall look.", "c2ln"), reads])
        .tool(code, false)
        .answer(
            "large-1",
            vec![spoken("# Answer\n\nA `main` of `Vec<u8>`.")],
        )
        .settled(TurnStatus::Completed, None)
        .prompt(Some(Message::user("Thanks")))
        .raw("message", "{\"kind\":\"message\",")
        .failed(None, Vec::new())
        .settled(TurnStatus::Error, Some(gave_up))
        .prompt(None)
        .wait(3600);
    session
}

#[test]
fn a_session_reads_well_as_lines_of_json() {
    insta::assert_snapshot!(eventful().document(Format::Jsonl, &head_of("A title")));
}

#[test]
fn a_session_reads_well_as_markdown() {
    insta::assert_snapshot!(eventful().document(Format::Markdown, &head_of("A *title*")));
}

#[test]
fn a_session_reads_well_in_a_browser() {
    insta::assert_snapshot!(eventful().document(Format::Html, &head_of("A <title>")));
}

#[test]
fn a_session_reads_well_in_a_terminal() {
    insta::assert_snapshot!(eventful().document(Format::Plain, &head_of("")));
}

// --- Content ---

#[test]
fn interrupted_wait_shows_actual_and_planned_end() {
    let mut session = Session::default();
    session.prompt(None).wait(3600).waited();
    let told = "Waited from 2027-01-15T08:00:01.000Z until 2027-01-15T08:00:02.000Z, cut short \
                (it was to last until 2027-01-15T09:00:01.000Z): Rate limited.";
    assert!(session.plain().contains(told), "{}", session.plain());
}

#[test]
fn queued_message_appears_once_where_it_is_delivered() {
    let queued = |text: &str| Entry::Queued {
        id: text.to_owned(),
        place: QueueKind::Steering,
        message: Message::user(text),
    };
    let said = |text: &str, note| Entry::Delivered {
        ids: vec![text.to_owned()],
        messages: vec![Message::user(text)],
        note,
    };
    let ids = vec!["Never mind".to_owned()];
    let mut session = Session::default();
    session
        .add(&said("ls: main.rs", true))
        .prompt(Some(Message::user("Hello")))
        .wait(3600)
        .add(&queued("Be short"))
        .waited()
        .add(&said("Be short", false))
        .add(&queued("Never mind"))
        .add(&Entry::Unqueued { ids })
        .answer("m", vec![spoken("Hi")])
        .settled(TurnStatus::Completed, None)
        .add(&queued("And now?"))
        .prompt(None)
        .add(&said("And now?", false))
        .answer("m", vec![spoken("Well")])
        .settled(TurnStatus::Completed, None);
    insta::assert_snapshot!(session.plain());
}

#[test]
fn unfinished_tool_is_reported() {
    let told = "Tool send_mail began to run; its end is not written down.";
    let mut session = Session::default();
    session
        .prompt(None)
        .answer("m", vec![call("send_mail", "{}")]);
    assert!(!session.plain().contains(told));
    session.tool_started();
    assert!(session.plain().contains(told), "{}", session.plain());
    session.tool("sent", false);
    assert!(!session.plain().contains(told), "{}", session.plain());
}

#[test]
fn open_turn_is_reported_and_settled_turn_is_not() {
    let told = "The end of this turn is not written down.";
    let mut session = Session::default();
    session.prompt(None);
    assert!(session.plain().contains(told));
    session.raw("settled", "damaged");
    assert!(!session.plain().contains(told), "{}", session.plain());
}

#[test]
fn image_is_described_by_type_and_size() {
    for (data, size) in [
        ("", 0),
        ("aA==", 1),
        ("aGk=", 2),
        ("aGVs", 3),
        ("aGVsbG8", 5),
    ] {
        let Part::Image(image) = picture("image/png", data) else {
            unreachable!()
        };
        let told = format!("Picture: image/png, {size} bytes");
        assert_eq!(phrases::describe_image(&image), told);
    }
}

#[test]
fn tool_output_is_cut_only_in_plain_format() {
    let mut session = Session::default();
    let long = "line\n".repeat(1000) + "the last";
    session.prompt(None).tool(&long, false);
    assert!(session.plain().contains("    … lines left out: 995\n"));
    for format in FORMATS {
        let document = session.document(format, &head_of(""));
        assert_eq!(document.contains("the last"), format != Format::Plain);
    }
}

#[test]
fn unreadable_entry_does_not_end_the_document() {
    for body in [
        "",
        "null",
        "{\"kind\":",
        "{\"kind\":\"from_the_future\"}",
        "\u{0}",
    ] {
        let mut session = Session::default();
        session
            .prompt(None)
            .raw("odd", body)
            .tool("after it", false);
        for format in FORMATS {
            let document = session.document(format, &head_of(""));
            assert!(document.contains("after it"), "{format:?} {body:?}");
            let told = document.contains("Entry 2 (odd) cannot be read");
            assert_eq!(told, format != Format::Jsonl, "{document}");
        }
    }
}

// --- Lines of JSON ---

#[test]
fn json_line_preserves_numbers_and_escapes_of_body() {
    let body = "{\"kind\":\"new\",\n\"number\":1.00000000000000000001,\"text\":\"\\u00e9\u{202e}\",\r\n\"deep\":{\"b\":1,\r\n\"a\":2}}";
    let mut session = Session::default();
    session.raw("new", body);
    let document = session.document(Format::Jsonl, &head_of(""));
    let line = document.lines().nth(1).unwrap();
    let expected = "{\"seq\":1,\"turn\":0,\"time\":\"2027-01-15T08:00:00.000Z\",\"kind\":\"new\",\
                    \"deep\":{\"b\":1,  \"a\":2},\"number\":1.00000000000000000001,\"text\":\"\\u00e9\\u202e\"}";
    assert_eq!(line, expected);
}

#[test]
fn conflicting_or_invalid_body_is_kept_as_text() {
    for body in [
        "{\"seq\":7}",
        "{\"kind\":\"other\"}",
        "[1]",
        "{\"kind\":1}",
        "{",
    ] {
        let mut session = Session::default();
        session.raw("new", body);
        let document = session.document(Format::Jsonl, &head_of(""));
        let line: Value = serde_json::from_str(document.lines().nth(1).unwrap()).unwrap();
        assert_eq!(line["unreadable"], body);
        assert_eq!(line["kind"], "new");
    }
}

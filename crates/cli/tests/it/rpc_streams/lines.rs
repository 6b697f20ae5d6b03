//! Lines that a client should not send, and unusual lines that are valid.

use super::MIB;
use super::client::Client;
use crate::support::Outlast;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::Duration;

fn start() -> (Outlast, Client) {
    let outlast = Outlast::new();
    let client = Client::start(&outlast, &["--model", "ok"]);
    (outlast, client)
}

const SWITCH: &str = r#"{"id":"after","type":"set_auto_retry","enabled":true}"#;

fn switched() -> Value {
    json!({"id": "after", "type": "response", "command": "set_auto_retry", "success": true})
}

#[test]
fn invalid_line_is_refused_once_and_next_command_runs() {
    let (_outlast, mut client) = start();
    let deep = vec![b'['; 100_000];
    let deep_id = [br#"{"type":"get_state","id":"#.as_slice(), &deep].concat();
    let table: [&[u8]; 12] = [
        b"{bad json",
        b"\0\0\0",
        b"{\"id\":\"a\0b\",\"type\":\"get_state\"}",
        b"\xff\xfe{\"type\":\"get_state\"}",
        b"{\"id\":\"\xc3\",\"type\":\"get_state\"}",
        b"{\"id\":1e999,\"type\":\"get_state\"}",
        b"{\"type\":\"get_state\"} {\"type\":\"get_state\"}",
        b"\xef\xbb\xbf{\"type\":\"get_state\"}",
        b"{'type':'get_state'}",
        b"{\"type\":\"get_state\",}",
        &deep,
        &deep_id,
    ];
    for line in table {
        client.send_bytes(&[line, b"\n", SWITCH.as_bytes(), b"\n"].concat());
        let said = String::from_utf8_lossy(&line[..line.len().min(40)]).into_owned();
        let refused = client.frame();
        assert_eq!(refused["command"], "parse", "{said}: {refused}");
        assert_eq!(refused["success"], false, "{said}");
        assert_eq!(refused.get("id"), None, "{said}");
        assert_eq!(client.frame(), switched(), "{said}");
    }
    let ended = client.end();
    assert_eq!((ended.code, ended.rest.as_str()), (0, ""));
}

#[test]
fn unusual_valid_lines_are_accepted() {
    let (_outlast, mut client) = start();
    client.send_bytes(b"\n\r\n\n");
    client.send_bytes(format!("{SWITCH}\r\n").as_bytes());
    assert_eq!(client.frame(), switched());
    // Of duplicate keys the last one counts.
    let twice = r#"{"id":1,"id":"after","type":"abort","type":"set_auto_retry","enabled":true}"#;
    assert_eq!(client.ask(twice), switched());
    for id in [
        json!(7),
        json!(1.5),
        json!({"a": [null]}),
        json!("\u{2028}\u{0}"),
    ] {
        let line = json!({"id": id, "type": "set_auto_retry", "enabled": true});
        assert_eq!(client.ask(&line.to_string())["id"], id);
    }
    let said = "a\u{2028}b\u{2029}c\r\u{85}\u{0}d";
    client.prompt(said);
    let heard = client.until(|frame| frame["message"]["role"] == "user");
    assert_eq!(heard["message"]["content"][0]["text"], said);
    client.until_kind("agent_settled");
}

#[test]
fn last_line_without_newline_works_and_half_line_fails() {
    let (_outlast, mut client) = start();
    client.send_bytes(SWITCH.as_bytes());
    let ended = client.end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(ended.rest.trim_end().parse::<Value>().unwrap(), switched());

    let (_outlast, mut client) = start();
    client.send_bytes(&[br#"{"id":"x","type":"#.as_slice(), &[b' '; 200_000]].concat());
    let ended = client.end();
    let refused: Value = serde_json::from_str(&ended.rest).unwrap();
    assert_eq!((ended.code, &refused["command"]), (0, &json!("parse")));
}

#[test]
fn ten_thousand_commands_get_replies_in_order() {
    const COUNT: u64 = 10_000;
    for (is_read, line) in [(true, r#""type":"get_state"}"#), (false, "bad json")] {
        let (_outlast, mut client) = start();
        let lines = (0..COUNT).map(|id| format!("{{\"id\":{id},{line}\n"));
        client.send_beside(lines.collect::<String>().into_bytes());
        for id in 0..COUNT {
            let reply = client.frame();
            assert_eq!(reply["success"], is_read);
            assert_eq!(reply.get("id"), is_read.then(|| json!(id)).as_ref());
        }
        let ended = client.end();
        assert_eq!((ended.code, ended.rest.as_str()), (0, ""));
    }
}

#[test]
fn unread_replies_stop_input_and_bound_memory() {
    const COUNT: usize = 300_000;
    let messages = r#"{"type":"get_messages"}"#;
    for line in ["x", SWITCH, r#"{"type":"get_state"}"#, messages] {
        let (_outlast, mut client) = start();
        client.state();
        let (before, _) = client.memory();
        let lines = format!("{line}\n").repeat(COUNT).into_bytes();
        let all = lines.len();
        let taken = client.send_beside(lines);
        let taken = || taken.load(Ordering::Relaxed);
        let mut last = usize::MAX;
        while last != taken() {
            last = taken();
            std::thread::sleep(Duration::from_millis(500));
        }
        let more = client.memory().1 - before;
        println!("{line}: {last} of {all} bytes, {} MiB", more / MIB);
        assert!(last < all, "{line}: all of it was taken");
        assert!(more < 96 * MIB, "{line}: {} MiB more", more / MIB);
        (0..1000).for_each(|_| drop(client.frame()));
    }
}

#[test]
fn fifty_mebibyte_prompt_is_sent_and_returned_intact() {
    let (_outlast, mut client) = start();
    client.state();
    let (before, _) = client.memory();
    let said = "0123456789abcdef".repeat((50 << 20) / 16);
    client.prompt(&said);
    for kind in ["message_start", "message_end"] {
        let heard = client.until_kind(kind);
        assert!(heard["message"]["content"][0]["text"] == *said, "{kind}");
    }
    client.until_kind("agent_settled");
    let told = client.ask(r#"{"type":"get_messages"}"#);
    let messages = told["data"]["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 2);
    assert!(messages[0]["content"][0]["text"] == *said);
    let (now, most) = client.memory();
    println!(
        "{} MiB at most, then {}",
        (most - before) / MIB,
        (now - before) / MIB
    );
    // The text is read, written to the journal, sent, reported three times and repeated: a dozen copies, of which only
    // the text itself may stay.
    assert!(
        most - before < 600 * MIB,
        "{} MiB more",
        (most - before) / MIB
    );
    assert!(
        now - before < 120 * MIB,
        "{} MiB stay",
        (now - before) / MIB
    );
}

#[test]
fn overlong_line_is_refused_with_bounded_memory() {
    let (_outlast, mut client) = start();
    client.state();
    let (before, _) = client.memory();
    let long = [vec![b'x'; 100 << 20], format!("\n{SWITCH}\n").into_bytes()].concat();
    client.send_beside(long);
    let refused = client.frame();
    assert_eq!(refused["command"], "parse");
    let error = refused["error"].as_str().unwrap();
    assert!(error.contains("it has 104857600 bytes"), "{error}");
    assert_eq!(client.frame(), switched());
    let more = client.memory().1 - before;
    // The buffer of a line that becomes too long has grown by doubling.
    assert!(more < 140 * MIB, "{} MiB more", more / MIB);
}

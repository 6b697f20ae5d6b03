//! The published schema accepts every line that is written, and rejects others.

use crate::kinds;
use jsonschema::Validator;
use outlast_kernel::event::Body;
use outlast_serve::event_encoder::{EventEncoder, JsonLines};
use outlast_serve::native::{FollowReply, FollowRequest, NativeEncoder};
use outlast_serve::schema;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const PUBLISHED: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/native-events.schema.json"
);

/// Returns a validator for written lines.
pub(crate) fn line_validator() -> Validator {
    validator(&schema::document())
}

fn validator(document: &Value) -> Validator {
    let options = jsonschema::draft202012::options();
    options
        .should_validate_formats(true)
        .build(document)
        .unwrap()
}

/// Returns a validator for one definition of the document.
pub(crate) fn definition_validator(definition: &str) -> Validator {
    let document = json!({
        "$ref": format!("#/$defs/{definition}"),
        "$defs": schema::document()["$defs"],
    });
    validator(&document)
}

/// Returns the lines that the encoder writes, as JSON.
pub(crate) fn encode_lines(say: impl FnOnce(&mut NativeEncoder, &mut JsonLines)) -> Vec<Value> {
    let mut lines = JsonLines::default();
    say(&mut NativeEncoder, &mut lines);
    let text = std::str::from_utf8(lines.as_bytes()).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    let read = |line| serde_json::from_str(line).unwrap();
    text.split_terminator('\n').map(read).collect()
}

/// Returns the event kinds that the schema lists.
fn kinds_of_the_schema() -> BTreeSet<String> {
    let document = schema::document();
    let variants = document["$defs"]["Event"]["oneOf"].as_array().unwrap();
    let word = |variant: &Value| {
        variant["properties"]["type"]["const"]
            .as_str()
            .map(str::to_owned)
    };
    variants
        .iter()
        .map(|variant| word(variant).unwrap())
        .collect()
}

#[test]
fn the_published_schema_is_current() {
    let published = std::fs::read_to_string(PUBLISHED).unwrap_or_default();
    let published: Value = serde_json::from_str(&published).unwrap_or_default();
    assert!(
        published == schema::document(),
        "docs/native-events.schema.json is not current; write it with\n    \
         outlast rpc --schema > docs/native-events.schema.json"
    );
    let text: Value = serde_json::from_str(&schema::text()).unwrap();
    assert_eq!(text, published);
}

#[test]
fn schema_is_valid_json_schema() {
    assert!(jsonschema::meta::is_valid(&schema::document()));
}

#[test]
fn every_event_kind_matches_schema() {
    let (lines, mut tried) = (line_validator(), BTreeSet::new());
    for event in kinds::all() {
        let [line] = &encode_lines(|voice, out| voice.encode(event.clone(), out))[..] else {
            panic!("an event is one line");
        };
        if let Err(error) = lines.validate(line) {
            panic!("{line}: {error}");
        }
        assert_eq!(line["type"], event.body.kind());
        assert_eq!(
            serde_json::from_value::<outlast_kernel::event::Event>(line.clone()).unwrap(),
            event
        );
        tried.insert(event.body.kind().to_owned());
    }
    assert_eq!(
        tried,
        kinds_of_the_schema(),
        "a kind is missing in kinds.rs"
    );
}

#[test]
fn event_kind_names_match_schema() {
    let names: BTreeSet<String> = Body::KINDS.iter().map(|&kind| kind.to_owned()).collect();
    assert_eq!(names, kinds_of_the_schema());
    assert_eq!(names.len(), Body::KINDS.len());
}

/// The fields that the schema requires are always present, and no others are required.
#[test]
fn event_without_required_field_is_rejected() {
    let lines = line_validator();
    let document = schema::document();
    let event = &document["$defs"]["Event"];
    for sample in kinds::all() {
        let line = serde_json::to_value(&sample).unwrap();
        let variants = event["oneOf"].as_array().unwrap().iter();
        let own = variants.filter(|variant| variant["properties"]["type"]["const"] == line["type"]);
        let own: Vec<&Value> = own.collect();
        for field in [event, own[0]]
            .into_iter()
            .flat_map(|part| part["required"].as_array().unwrap())
        {
            let mut without = line.clone();
            without
                .as_object_mut()
                .unwrap()
                .remove(field.as_str().unwrap());
            assert!(!lines.is_valid(&without), "{without}");
        }
    }
}

#[test]
fn invalid_events_and_replies_are_rejected() {
    let lines = line_validator();
    let text = json!({ "type": "text_delta", "text": "x" });
    let retry = json!({
        "type": "retry_scheduled", "attempt": 1, "delay_ms": 1, "retry_at": kinds::NOW, "cause": "network", "message": "x",
    });
    let with = |body: &Value, field: &str, value: Value| {
        let mut line = serde_json::to_value(kinds::event(
            1,
            Body::Account {
                name: String::new(),
            },
        ))
        .unwrap();
        let object = line.as_object_mut().unwrap();
        object.remove("name");
        object.extend(body.as_object().unwrap().clone());
        object.insert(field.to_owned(), value);
        line
    };
    assert!(
        lines.is_valid(&with(&text, "new", json!(1))),
        "a new field is no fault"
    );
    assert!(lines.is_valid(&with(&retry, "new", json!(1))));
    let wrong = [
        with(&text, "type", json!("texts")),
        with(&text, "text", json!(1)),
        with(&text, "time", json!("yesterday")),
        with(&text, "time", json!(1_800_000_000_000_u64)),
        with(&text, "seq", json!("1")),
        with(&text, "seq", json!(-1)),
        with(&text, "attempt_id", Value::Null),
        with(&retry, "cause", json!("weather")),
        with(&retry, "retry_at", json!("soon")),
        with(&retry, "code", json!(529)),
        with(&retry, "max_attempts", Value::Null),
        json!({ "type": "settled" }),
        json!({ "type": "over", "aborted": false }),
        json!({ "aborted": false }),
        json!({ "type": "response", "command": "abort" }),
        json!({ "type": "response", "command": "abort", "success": false }),
        json!({ "type": "response", "command": "snapshot", "success": true }),
        json!({ "type": "response", "command": "snapshot", "success": true, "data": {} }),
        json!({ "type": "response", "command": "follow", "success": true, "data": { "events": -1 } }),
        json!([]),
    ];
    for line in wrong {
        assert!(!lines.is_valid(&line), "{line}");
    }
}

#[test]
fn settled_event_and_replies_match_schema() {
    let settled = encode_lines(|voice, out| {
        voice.encode_run_end(false, out);
        voice.encode_run_end(true, out);
    });
    let expected = [false, true].map(|aborted| json!({ "type": "settled", "aborted": aborted }));
    assert_eq!(settled, expected);
    let events = FollowReply { events: 7 };
    let right = [
        json!({ "type": "response", "command": "abort", "success": true }),
        json!({ "id": "1", "type": "response", "command": "follow", "success": true, "data": events }),
        json!({ "type": "response", "command": "parse", "success": false, "error": "no JSON" }),
        json!({ "type": "response", "command": "follow", "success": false, "error": "x", "code": "stale", "oldest": 8 }),
    ];
    let lines = line_validator();
    for line in settled.iter().chain(&right) {
        assert!(lines.is_valid(line), "{line}");
    }
}

#[test]
fn commands_match_schema() {
    let command = definition_validator("Command");
    let image = json!({ "type": "image", "data": "AAAA", "mimeType": "image/png" });
    let right = [
        json!({ "id": "1", "type": "prompt", "message": "hello", "images": [image], "streamingBehavior": "steer" }),
        json!({ "type": "set_follow_up_mode", "mode": "one-at-a-time" }),
        json!({ "type": "follow" }),
        json!({ "type": "follow", "after": 0, "only": ["retry_scheduled", "sealed"] }),
        json!({ "type": "snapshot", "new": true }),
    ];
    for line in right {
        assert!(command.is_valid(&line), "{line}");
    }
    let wrong = [
        json!({ "type": "prompt" }),
        json!({ "type": "set_auto_retry", "enabled": "yes" }),
        json!({ "type": "set_steering_mode", "mode": "some" }),
        json!({ "type": "dance" }),
        json!({ "type": "follow", "after": -1 }),
        json!({ "type": "follow", "only": ["texts"] }),
    ];
    for line in wrong {
        assert!(!command.is_valid(&line), "{line}");
    }
    // The command parser agrees with the schema.
    assert!(
        FollowRequest::parse(&json!({ "after": 0, "only": ["retry_scheduled", "sealed"] })).is_ok()
    );
    assert!(FollowRequest::parse(&json!({ "only": ["texts"] })).is_err());
}

#[test]
fn command_names_are_complete_and_unique() {
    let names: Vec<&str> = schema::command_names().collect();
    let once: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!((names.len(), once.len()), (37, 37));
}

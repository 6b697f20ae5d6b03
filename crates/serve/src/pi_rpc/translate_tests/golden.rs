//! Compares shapes with a recorded dialogue: every field in its frames is also in ours.

use super::script::Script;
use serde_json::{Map, Value, json};

const RECORDED: &str = include_str!("../../../tests/golden-0.73.1.jsonl");

/// A field that a provider may send and that is not stored.
const NOT_KEPT: &str = "responseId";

/// Replaces values by their types; the first element of an array stands for all of them.
pub(in crate::pi_rpc) fn shape(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(key, _)| *key != NOT_KEPT);
            let fields = fields.map(|(key, value)| (key.clone(), shape(value)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.first().map(shape).into_iter().collect()),
        Value::String(_) => json!("string"),
        Value::Number(_) => json!("number"),
        Value::Bool(_) => json!("bool"),
        Value::Null => Value::Null,
    }
}

/// Returns whether all fields of `wanted` are in `found`.
pub(in crate::pi_rpc) fn is_within(wanted: &Value, found: &Value) -> bool {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => wanted.iter().all(|(key, value)| {
            let found = found.get(key);
            found.is_some_and(|found| is_within(value, found))
        }),
        (Value::Array(wanted), Value::Array(found)) => match (wanted.first(), found.first()) {
            (Some(wanted), Some(found)) => is_within(wanted, found),
            (wanted, _) => wanted.is_none(),
        },
        (wanted, found) => wanted == found,
    }
}

/// Returns the frames that the recorded server wrote.
pub(in crate::pi_rpc) fn recorded() -> Vec<Value> {
    let lines = RECORDED
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let written = lines.filter(|line| line["dir"] == "out");
    let parse = |line: Value| serde_json::from_str(line["line"].as_str().unwrap()).unwrap();
    written.map(parse).collect()
}

fn kind(frame: &Value) -> (&Value, &Value) {
    (&frame["type"], &frame["assistantMessageEvent"]["type"])
}

#[test]
fn every_recorded_frame_shape_is_covered() {
    let plain = Script::prompt("hello there")
        .attempt()
        .text("hello")
        .done()
        .settle(false);
    let failed = Script::prompt("retry me")
        .attempt()
        .retry(1)
        .retry_ended(Some("Retry cancelled"));
    let failed = failed.error("529 busy").failed().settle(false);
    let aborted = Script::prompt("hello").attempt().aborted().settle(true);
    let others = Script::new().by_hand(Some("hello"), None).renamed("n1");
    let others = others.queue(&["s1"], &[]).queue(&["s1"], &["f1"]);
    let scripts = [plain, failed, aborted, others];
    let ours: Vec<Value> = scripts.into_iter().flat_map(Script::frames).collect();
    let mut seen = 0;
    for frame in recorded() {
        if frame["type"] == "response" {
            continue;
        }
        seen += 1;
        let wanted = shape(&frame);
        let fits = |ours: &&Value| kind(ours) == kind(&frame) && is_within(&wanted, &shape(ours));
        assert!(ours.iter().any(|ours| fits(&ours)), "nothing like {frame}");
    }
    assert_eq!(seen, 34);
}

#[test]
fn shape_with_missing_field_does_not_match() {
    let (whole, less) = (
        json!({"a": [{"b": 1}], "c": "x"}),
        json!({"a": [{}], "c": "x"}),
    );
    assert!(is_within(&shape(&less), &shape(&whole)));
    assert!(!is_within(&shape(&whole), &shape(&less)));
    assert!(!is_within(
        &shape(&json!({"a": 1})),
        &shape(&json!({"a": "1"}))
    ));
}

//! One conversation, encoded in three dialects.

use outlast_dialect::{Delivery, Dialect, Image, Message, Part, Request, Role, Tool, ToolResult};
use outlast_kernel::event::{Proof, Reasoning, ToolCall};
use serde_json::{Value, json};

/// A conversation with every kind of part.
fn conversation() -> Request {
    let text = |text: &str| Part::Text {
        text: text.to_owned(),
    };
    let thought = |text: &str, proof: Proof| {
        Part::Reasoning(Reasoning {
            text: text.to_owned(),
            proof: Some(proof),
            ..Reasoning::default()
        })
    };
    let signature = "c2ln/+==".to_owned();
    let (id, content) = ("rs_1".to_owned(), Some("ZW5j/+==".to_owned()));
    let call = |id: &str, arguments: &str| {
        Part::ToolCall(ToolCall {
            id: id.to_owned(),
            name: "look".to_owned(),
            arguments: arguments.to_owned(),
        })
    };
    let result = |id: &str, output: &str, is_error| {
        Part::ToolResult(ToolResult {
            id: id.to_owned(),
            output: output.to_owned(),
            is_error,
        })
    };
    let image = Part::Image(Image {
        media_type: "image/png".to_owned(),
        data: "iVBORw0KGgo=".to_owned(),
    });
    let said = |role, parts| Message { role, parts };
    Request {
        model: "m".to_owned(),
        system: Some("Be brief.".to_owned()),
        messages: vec![
            said(Role::User, vec![text("What is this?"), image]),
            said(
                Role::Assistant,
                vec![
                    thought("Signed.", Proof::Signature { signature }),
                    thought("Kept.", Proof::Encrypted { id, content }),
                    text("I look."),
                    call("a", r#"{"at":1}"#),
                    call("b", "not json"),
                ],
            ),
            said(
                Role::User,
                vec![
                    result("a", "a cat", false),
                    result("b", "no such place", true),
                    text("Well?"),
                ],
            ),
        ],
        tools: vec![Tool {
            name: "look".to_owned(),
            description: "Looks at a place".to_owned(),
            parameters: json!({ "type": "object", "properties": { "at": { "type": "integer" } } }),
        }],
        max_tokens: Some(100),
        delivery: Delivery::Streamed,
        resumable: false,
    }
}

fn encoded_body(dialect: Dialect, request: &Request) -> Value {
    serde_json::from_slice(&dialect.encode_request(request)).unwrap()
}

#[test]
fn conversation_encodes_to_snapshot_in_each_dialect() {
    for dialect in Dialect::ALL {
        let body = encoded_body(dialect, &conversation());
        let pretty = serde_json::to_string_pretty(&body).unwrap();
        insta::assert_snapshot!(dialect.name(), pretty);
    }
}

#[test]
fn minimal_request_encodes_only_required_fields() {
    let request = Request {
        model: "m".to_owned(),
        messages: vec![Message::user("hi")],
        delivery: Delivery::Whole,
        ..Request::default()
    };
    let chat = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] });
    assert_eq!(encoded_body(Dialect::OpenaiChat, &request), chat);
    let anthropic = encoded_body(Dialect::Anthropic, &request);
    assert_eq!(
        (&anthropic["stream"], &anthropic["max_tokens"]),
        (&json!(false), &json!(8192))
    );
    assert_eq!(
        encoded_body(Dialect::OpenaiResponses, &request)["store"],
        false
    );
}

#[test]
fn only_resumable_streamed_responses_run_in_background() {
    let body = |dialect, resumable, delivery| {
        let request = Request {
            resumable,
            delivery,
            ..conversation()
        };
        encoded_body(dialect, &request)
    };
    let kept = |dialect, resumable, delivery| {
        let body = body(dialect, resumable, delivery);
        (body["background"].clone(), body["store"].clone())
    };
    let responses = Dialect::OpenaiResponses;
    let streamed = kept(responses, true, Delivery::Streamed);
    assert_eq!(streamed, (json!(true), json!(true)));
    for (resumable, delivery) in [(false, Delivery::Streamed), (true, Delivery::Whole)] {
        let expected = (Value::Null, json!(false));
        assert_eq!(kept(responses, resumable, delivery), expected);
    }
    for dialect in [Dialect::Anthropic, Dialect::OpenaiChat] {
        let same = body(dialect, false, Delivery::Streamed);
        assert_eq!(body(dialect, true, Delivery::Streamed), same);
    }
}

#[test]
fn tool_arguments_are_sent_back_verbatim() {
    let asked_with = |arguments: &str| {
        let call = Part::ToolCall(ToolCall {
            id: "a".to_owned(),
            name: "look".to_owned(),
            arguments: arguments.to_owned(),
        });
        let request = Request {
            messages: vec![Message {
                role: Role::Assistant,
                parts: vec![call],
            }],
            ..Request::default()
        };
        String::from_utf8(Dialect::Anthropic.encode_request(&request)).unwrap()
    };
    let exact = r#"{"z": 1.0, "a": 12345678901234567890123}"#;
    assert!(asked_with(exact).contains(&format!(r#""input":{exact}"#)));
    // Input that the API could not read goes back as text.
    for odd in ["[1]", "", r#"{"x":"\ud83d"}"#, r#"{"x":1e999}"#] {
        let body: Value = serde_json::from_str(&asked_with(odd)).unwrap();
        let input = &body["messages"][0]["content"][0]["input"];
        assert_eq!(*input, json!({ "text": odd }));
    }
}

#[test]
fn reasoning_of_another_model_is_left_out() {
    let (signature, id) = ("c2ln".to_owned(), "rs_1".to_owned());
    let content = Some("ZW5j".to_owned());
    for proof in [
        Proof::Signature { signature },
        Proof::Encrypted { id, content },
    ] {
        let asked_of = |model: &str, own: Option<&str>| {
            let thought = Part::Reasoning(Reasoning {
                text: "THOUGHT".to_owned(),
                proof: Some(proof.clone()),
                model: own.map(str::to_owned),
            });
            let thought = Message {
                role: Role::Assistant,
                parts: vec![thought],
            };
            let request = Request {
                model: model.to_owned(),
                messages: vec![Message::user("hi"), thought, Message::user("go on")],
                ..Request::default()
            };
            Dialect::ALL.map(|dialect| encoded_body(dialect, &request))
        };
        let says_it = |body: &Value| body.to_string().contains("THOUGHT");
        let conversation = |body: &Value| match &body["messages"] {
            Value::Null => body["input"].as_array().unwrap().len(),
            messages => messages.as_array().unwrap().len(),
        };
        for own in [None, Some("m")] {
            let bodies = asked_of("m", own);
            assert_eq!(bodies.iter().filter(|body| says_it(body)).count(), 1);
        }
        for body in asked_of("other", Some("m")) {
            assert!(!says_it(&body), "{body}");
            // A message of nothing else is left out.
            assert_eq!(conversation(&body), 2, "{body}");
        }
    }
}

/// Two steps, each with calls of these ids.
fn two_steps(ids: [&[&str]; 2]) -> Request {
    let mut messages = vec![Message::user("hi")];
    for ids in ids {
        let calls = ids.iter().map(|id| {
            Part::ToolCall(ToolCall {
                id: (*id).to_owned(),
                name: "look".to_owned(),
                arguments: "{}".to_owned(),
            })
        });
        let results = ids.iter().enumerate().map(|(number, id)| {
            Part::ToolResult(ToolResult {
                id: (*id).to_owned(),
                output: format!("{number}"),
                is_error: false,
            })
        });
        let said = |role, parts| Message { role, parts };
        messages.push(said(Role::Assistant, calls.collect()));
        messages.push(said(Role::User, results.collect()));
    }
    Request {
        model: "m".to_owned(),
        messages,
        ..Request::default()
    }
}

/// The ids of all calls and of all results of a body, in order.
fn ids(body: &Value) -> [Vec<String>; 2] {
    fn collect(value: &Value, found: &mut [Vec<String>; 2]) {
        let id = |name: &str| value[name].as_str().map(str::to_owned);
        match value["type"].as_str() {
            Some("tool_use" | "function") => found[0].extend(id("id")),
            Some("function_call") => found[0].extend(id("call_id")),
            Some("tool_result") => found[1].extend(id("tool_use_id")),
            Some("function_call_output") => found[1].extend(id("call_id")),
            _ => found[1].extend(id("tool_call_id")),
        }
        match value {
            Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
            Value::Object(fields) => fields.values().for_each(|value| collect(value, found)),
            _ => {}
        }
    }
    let mut found = <[Vec<String>; 2]>::default();
    collect(body, &mut found);
    found
}

#[test]
fn duplicate_call_ids_are_made_unique_with_their_results() {
    for dialect in Dialect::ALL {
        let body = encoded_body(
            dialect,
            &two_steps([&["call_1", "call_1"], &["call_1", "b"]]),
        );
        let [calls, results] = ids(&body);
        assert_eq!(
            calls,
            ["call_1", "call_1_2", "call_1_3", "b"],
            "{dialect:?}"
        );
        assert_eq!(results, calls, "{dialect:?}");
        // Earlier messages are sent unchanged.
        let mut earlier = two_steps([&["call_1", "call_1"], &[]]);
        earlier.messages.truncate(3);
        let [earlier, _] = ids(&encoded_body(dialect, &earlier));
        assert_eq!(earlier, calls[..2], "{dialect:?}");
    }
}

#[test]
fn foreign_call_ids_are_sanitized_for_anthropic() {
    let request = two_steps([&["functions.look:0"], &["call/é"]]);
    let [calls, results] = ids(&encoded_body(Dialect::Anthropic, &request));
    assert_eq!(calls, ["functions_look_0_2", "call___2"]);
    assert_eq!(results, calls);
    let [calls, results] = ids(&encoded_body(Dialect::OpenaiChat, &request));
    assert_eq!(calls, ["functions.look:0", "call/é"]);
    assert_eq!(results, calls);
}

#[test]
fn blank_assistant_text_is_not_sent_to_anthropic() {
    let mut request = two_steps([&["a"], &["b"]]);
    let blank = |text: &str| Part::Text {
        text: text.to_owned(),
    };
    request.messages[1].parts.insert(0, blank("\n\n"));
    request.messages.push(Message {
        role: Role::Assistant,
        parts: vec![blank(" ")],
    });
    let messages = encoded_body(Dialect::Anthropic, &request)["messages"].clone();
    assert_eq!(messages.as_array().unwrap().len(), 5);
    assert_eq!(messages[1]["content"].as_array().unwrap().len(), 1);
}

use super::*;
use outlast_dialect::{Image, Role, ToolResult};
use outlast_kernel::event::ToolCall;
use proptest::prelude::*;
use serde_json::json;

fn request(messages: Vec<Message>) -> Request {
    Request {
        messages,
        ..Request::default()
    }
}

fn message(part: Part) -> Message {
    let (role, parts) = (Role::User, vec![part]);
    Message { role, parts }
}

fn image(bytes: usize) -> Part {
    Part::Image(Image {
        media_type: "image/png".to_owned(),
        data: "x".repeat(bytes),
    })
}

#[test]
fn token_estimate_is_denser_for_json_and_cjk() {
    let table = [
        ("The quick brown fox jumps over the lazy dog.", 3.6, 4.1),
        (r#"{"path":"src/main.rs","limit":20}"#, 2.5, 3.3),
        ("fn main() { println!(\"{x}\"); }", 2.4, 3.4),
        ("Привет, как дела?", 3.5, 4.1),
        ("数据库连接失败，请稍后重试。", 2.9, 3.1),
    ];
    for (text, least, most) in table {
        let text = text.repeat(50);
        #[allow(clippy::cast_precision_loss, reason = "the numbers are small")]
        let bytes_a_token = text.len() as f64 / text_tokens(&text) as f64;
        let fits = (least..=most).contains(&bytes_a_token);
        assert!(fits, "{bytes_a_token} bytes a token: {text:.40}");
    }
}

#[test]
fn image_tokens_do_not_depend_on_bytes() {
    let of = |bytes| request_tokens(&request(vec![message(image(bytes))]));
    assert_eq!((of(10), of(1_000_000)), (1504, 1504));
    let request = request(vec![message(image(1000)), Message::user("hello")]);
    assert_eq!(
        (request_bytes(&request), image_bytes(&request)),
        (1005, 1000)
    );
}

#[test]
fn the_system_prompt_and_the_tools_are_counted() {
    let bare = request(vec![Message::user("hello")]);
    let told = Request {
        system: Some("Be brief. ".repeat(100)),
        ..bare.clone()
    };
    let parameters = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    let equipped = Request {
        tools: vec![Tool {
            name: "read".to_owned(),
            description: "Reads a file.".to_owned(),
            parameters,
        }],
        ..bare.clone()
    };
    assert!(
        request_tokens(&told) > request_tokens(&bare) + 240,
        "{}",
        request_tokens(&told)
    );
    assert!(
        request_tokens(&equipped) > request_tokens(&bare) + 15,
        "{}",
        request_tokens(&equipped)
    );
    assert!(
        request_bytes(&told) == request_bytes(&bare) + 1000
            && request_bytes(&equipped) > request_bytes(&bare) + 40
    );
}

#[test]
fn billed_tokens_count_for_old_messages_estimate_for_new() {
    let asked = request(vec![Message::user("hello"), Message::user("x".repeat(400))]);
    let seen = |tokens, messages| {
        request_tokens_with_billing(&asked, Some(BilledTokens { tokens, messages }))
    };
    let own = request_tokens(&asked);
    let last = messages_tokens(&asked.messages[1..]);
    assert_eq!(request_tokens_with_billing(&asked, None), own);
    assert_eq!(seen(5000, 1), 5000 + last);
    assert_eq!(seen(5000, 2), 5000);
    assert_eq!(seen(1, 2), own, "a bill that is too low counts for nothing");
    assert_eq!(seen(5000, 3), own, "it was for a longer conversation");
}

fn parts() -> impl Strategy<Value = Part> {
    let call = |text: String| ToolCall {
        id: "1".to_owned(),
        name: "read".to_owned(),
        arguments: text,
    };
    let result = |output| ToolResult {
        id: "1".to_owned(),
        output,
        is_error: false,
    };
    prop_oneof![
        ".{0,200}".prop_map(|text| Part::Text { text }),
        ".{0,200}".prop_map(move |text| Part::ToolCall(call(text))),
        ".{0,200}".prop_map(move |text| Part::ToolResult(result(text))),
        (0_usize..1000).prop_map(image),
    ]
}

proptest! {
    #[test]
    fn adding_a_message_never_makes_a_request_smaller(
        parts in proptest::collection::vec(parts(), 0..20),
        tokens_seen in 0_u64..10_000,
        messages_seen in 0_usize..20,
    ) {
        let mut growing = request(Vec::new());
        let seen = BilledTokens { tokens: tokens_seen, messages: messages_seen };
        for part in parts {
            let before = growing.clone();
            growing.messages.push(message(part));
            prop_assert!(request_tokens(&growing) > request_tokens(&before));
            prop_assert!(request_bytes(&growing) >= request_bytes(&before));
            if before.messages.len() >= seen.messages {
                prop_assert!(request_tokens_with_billing(&growing, Some(seen)) >= request_tokens_with_billing(&before, Some(seen)));
            }
        }
    }

    #[test]
    fn text_has_at_least_one_token_per_four_bytes(text in ".{0,300}") {
        prop_assert!(text_tokens(&text) * 4 >= length(&text));
        prop_assert!(text_tokens(&text) <= length(&text) + 1);
    }
}

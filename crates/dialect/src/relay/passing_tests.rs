//! The activity of frames, and the size of the part that is held back.

use crate::relay::test_support::{CONTENT, LAST, index_of, push, started_relay};
use crate::relay::{MAX_HELD_BYTES, MAX_INSPECTED_BYTES, MAX_TAIL_BYTES};
use crate::test_support::{NOW, wire};
use crate::{ApiError, Dialect, Interruption, StreamActivity};
use bytes::Bytes;

// --- activity ---

#[test]
fn push_reports_opening_keepalive_or_progress() {
    for dialect in Dialect::ALL {
        let mut relay = dialect.relay("p");
        let opening = dialect.encode_stream("m", &[]).concat();
        assert_eq!(
            push(&mut relay, &opening).0.unwrap(),
            StreamActivity::Opening
        );
        let content = wire(&[CONTENT[index_of(dialect)]]);
        let still = [
            dialect.keepalive_frame(),
            dialect.unknown_frame("m"),
            ": x\n\n".to_owned(),
            "\n".to_owned(),
        ];
        for _ in 0..2 {
            for frame in &still {
                assert_eq!(
                    push(&mut relay, frame).0.unwrap(),
                    StreamActivity::KeepAlive,
                    "{frame}"
                );
            }
            assert_eq!(
                push(&mut relay, &content).0.unwrap(),
                StreamActivity::Progress
            );
            assert_eq!(
                push(&mut relay, &content[..9]).0.unwrap(),
                StreamActivity::KeepAlive
            );
            assert_eq!(
                push(&mut relay, &content[9..]).0.unwrap(),
                StreamActivity::Progress
            );
        }
    }
    let mut relay = started_relay(Dialect::OpenaiChat);
    let empty = wire(&[r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#]);
    assert_eq!(
        push(&mut relay, &empty).0.unwrap(),
        StreamActivity::KeepAlive
    );
}

// --- held part ---

#[test]
fn complete_frames_are_relayed_without_copying() {
    for dialect in Dialect::ALL {
        let mut relay = started_relay(dialect);
        let bytes = Bytes::from(wire(&[CONTENT[index_of(dialect)]; 5]));
        let mut out = Vec::new();
        relay.push(bytes.clone(), NOW, &mut out).unwrap();
        assert_eq!(out.concat(), bytes);
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].as_ptr(), bytes.as_ptr());
    }
}

#[test]
fn held_bytes_over_limit_are_released_as_content() {
    for dialect in Dialect::ALL {
        let comment = format!(": {}\n\n", "x".repeat(MAX_HELD_BYTES / 4));
        let mut relay = dialect.relay("p");
        for _ in 0..3 {
            assert!(push(&mut relay, &comment).1.is_empty());
        }
        let (_, out) = push(&mut relay, &comment);
        assert_eq!(out.concat().len(), 4 * comment.len());
        assert!(relay.has_content() && relay.is_between_frames());
        push(&mut relay, &wire(&[LAST[index_of(dialect)]]))
            .0
            .unwrap();
        assert!(relay.is_complete());
    }
}

#[test]
fn oversized_error_frame_is_relayed_as_content() {
    let message = "x".repeat(MAX_HELD_BYTES);
    for dialect in Dialect::ALL {
        let error = dialect.encode_error_frame(
            &ApiError::new("api_error", &message),
            &Interruption::default(),
        );
        for size in [error.len(), 1 << 14] {
            let mut relay = dialect.relay("p");
            let mut sent = Vec::new();
            for piece in error.as_bytes().chunks(size) {
                relay
                    .push(Bytes::copy_from_slice(piece), NOW, &mut sent)
                    .unwrap();
            }
            assert_eq!(sent.concat(), error.as_bytes());
            assert!(relay.has_content() && relay.relayed_error().is_some());
        }
    }
}

#[test]
fn long_frame_is_relayed_early_and_evaluated_at_its_end() {
    let filler = "x".repeat(MAX_TAIL_BYTES);
    let data = LAST[2].strip_suffix('}').unwrap();
    let head = format!("data: {data},\"filler\":\"{filler}");
    for count in [0, MAX_INSPECTED_BYTES / MAX_TAIL_BYTES + 1] {
        for mut relay in [
            started_relay(Dialect::OpenaiResponses),
            Dialect::OpenaiResponses.relay("p"),
        ] {
            let mut sent = Vec::new();
            for piece in std::iter::once(&head).chain(std::iter::repeat_n(&filler, count + 4)) {
                sent.extend(push(&mut relay, piece).1);
            }
            assert!(relay.has_content() && !relay.is_between_frames());
            sent.extend(push(&mut relay, "\"}\n").1);
            assert!(!relay.is_complete());
            sent.extend(push(&mut relay, "\n").1);
            assert!(relay.is_complete() && relay.is_between_frames());
            let whole = format!("{head}{}\"}}\n\n", filler.repeat(count + 4));
            assert_eq!(sent.concat(), whole.as_bytes());
        }
    }
}

#[test]
fn oversized_frame_in_one_push_is_relayed_completely() {
    let mut relay = started_relay(Dialect::OpenaiChat);
    assert!(push(&mut relay, "data: ").1.is_empty());
    let begin = "x".repeat(2 * MAX_INSPECTED_BYTES);
    assert_eq!(
        push(&mut relay, &begin).1.concat(),
        format!("data: {begin}").as_bytes()
    );
    assert!(!relay.is_between_frames());
    let (_, out) = push(&mut relay, "\n\ndata: [DO");
    assert_eq!(out.concat(), b"\n\n");
    assert!(relay.is_between_frames());
    assert_eq!(push(&mut relay, "NE]\n\n").1.concat(), b"data: [DONE]\n\n");
    assert!(relay.is_complete());
}

use super::*;
use outlast_kernel::Timestamp;
use serde_json::{Value, json};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, DuplexStream, duplex};
use tokio::task::JoinHandle;

/// Encodes events unchanged.
struct PlainEncoder;

impl EventEncoder for PlainEncoder {
    fn encode(&mut self, event: Event, out: &mut JsonLines) {
        out.push(&event);
    }

    fn encode_run_end(&mut self, aborted: bool, out: &mut JsonLines) {
        out.push(&json!({ "type": "run_ended", "aborted": aborted }));
    }

    fn merge_threshold(&self) -> usize {
        0
    }
}

fn event(seq: u64, body: Body) -> Event {
    Event {
        v: 1,
        seq,
        time: Timestamp::from_millis(1_800_000_000_000 + seq),
        session_id: "s".to_owned(),
        turn_id: "t".to_owned(),
        attempt_id: Some("a1".to_owned()),
        body,
    }
}

fn text(seq: u64, text: &str) -> Event {
    let text = text.to_owned();
    event(seq, Body::TextDelta { text })
}

fn thought(seq: u64, text: &str) -> Event {
    let text = text.to_owned();
    event(seq, Body::ReasoningDelta { text })
}

fn whole(frame: &Value) -> Item {
    Item::Reply(serde_json::value::to_raw_value(frame).unwrap())
}

fn reply(id: u64) -> Item {
    whole(&json!({ "type": "response", "id": id }))
}

/// Returns everything that is written when all items were sent before the writer runs.
async fn written(merges_above: usize, items: Vec<Item>) -> Vec<Value> {
    let (outbox, writer) = Outbox::new(merges_above);
    for item in items {
        outbox.send(item);
    }
    outbox.close();
    let mut out = Vec::new();
    writer.run(&mut out, Box::new(PlainEncoder)).await.unwrap();
    let lines = String::from_utf8(out).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns the written frames in short form.
async fn written_texts(merges_above: usize, items: Vec<Item>) -> Vec<String> {
    let frames = written(merges_above, items).await;
    let short = |frame: &Value| match frame["text"].as_str() {
        Some(text) => text.to_owned(),
        None => frame["type"].as_str().unwrap().to_owned(),
    };
    frames.iter().map(short).collect()
}

/// Starts a writer, and returns the stream that its client reads from.
fn running(buffer: usize) -> (Outbox, JoinHandle<io::Result<()>>, DuplexStream) {
    let (outbox, writer) = Outbox::new(0);
    let (near, far) = duplex(buffer);
    let task = tokio::spawn(writer.run(near, Box::new(PlainEncoder)));
    (outbox, task, far)
}

/// Lets all tasks run until they block.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

fn weight_of(outbox: &Outbox) -> usize {
    outbox.sender.shared.queue.lock().weight
}

#[tokio::test]
async fn replies_events_and_ends_keep_send_order() {
    let items = vec![
        reply(1),
        Item::Event(text(1, "a")),
        reply(2),
        Item::RunEnded { aborted: true },
        Item::Event(text(2, "b")),
    ];
    let frames = written(0, items).await;
    assert_eq!(frames.len(), 5);
    assert_eq!(frames[0], json!({ "type": "response", "id": 1 }));
    assert_eq!(frames[1]["text"], "a");
    assert_eq!(frames[2]["id"], 2);
    assert_eq!(frames[3], json!({ "type": "run_ended", "aborted": true }));
    assert_eq!(frames[4]["text"], "b");
}

#[tokio::test]
async fn queued_deltas_merge_and_keep_last_sequence_number() {
    let items = (1..=3).map(|seq| Item::Event(text(seq, &format!("{seq}"))));
    let frames = written(0, items.collect()).await;
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0]["text"], "123");
    assert_eq!(frames[0]["seq"], 3);
    assert_eq!(frames[0]["time"], json!(text(3, "").time));
}

#[tokio::test]
async fn deltas_merge_only_above_queue_threshold() {
    let pieces = |count| (0..count).map(|seq| Item::Event(text(seq, "x"))).collect();
    let one = weight(&Item::Event(text(0, "x"))) + OVERHEAD;
    assert_eq!(written_texts(usize::MAX, pieces(4)).await, ["x"; 4]);
    assert_eq!(written_texts(one, pieces(4)).await, ["x", "xxx"]);
}

#[tokio::test]
async fn deltas_do_not_merge_across_other_items() {
    let other = |change: fn(&mut Event)| {
        let mut event = text(2, "b");
        change(&mut event);
        Item::Event(event)
    };
    let between = [
        reply(1),
        Item::RunEnded { aborted: false },
        Item::Event(thought(2, "b")),
        Item::Event(event(2, Body::AttemptStarted { attempt: 2 })),
        other(|event| event.attempt_id = Some("a2".to_owned())),
        other(|event| event.attempt_id = None),
        other(|event| event.turn_id = "t2".to_owned()),
        other(|event| event.session_id = "s2".to_owned()),
    ];
    for item in between {
        let name = format!("{item:?}");
        let items = vec![Item::Event(text(1, "a")), item, Item::Event(text(3, "c"))];
        let said = written_texts(0, items).await;
        assert_eq!(said.len(), 3, "{name}: {said:?}");
        assert_eq!((&*said[0], &*said[2]), ("a", "c"), "{name}");
    }
    let thoughts = vec![Item::Event(thought(1, "a")), Item::Event(thought(2, "b"))];
    assert_eq!(written_texts(0, thoughts).await, ["ab"]);
}

#[tokio::test]
async fn stalled_reader_loses_no_text_and_queue_stays_small() {
    let (outbox, task, far) = running(256);
    let mut expected = String::new();
    for seq in 0..100_000 {
        let piece = format!("{seq} ");
        expected.push_str(&piece);
        outbox.send(Item::Event(text(seq, &piece)));
        if seq % 1000 == 0 {
            settle().await;
        }
    }
    assert!(weight_of(&outbox) < expected.len() + 4096);
    assert!(outbox.sender.shared.queue.lock().items.len() < 10);
    outbox.send(reply(1));
    let mut lines = BufReader::new(far).lines();
    let mut found = String::new();
    loop {
        let line = lines.next_line().await.unwrap().unwrap();
        let frame: Value = serde_json::from_str(&line).unwrap();
        if frame["id"] == 1 {
            break;
        }
        found.push_str(frame["text"].as_str().unwrap());
    }
    assert_eq!(found, expected);
    settle().await;
    assert_eq!(weight_of(&outbox), 0);
    outbox.close();
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn wait_for_space_keeps_queue_near_limit() {
    let (outbox, task, mut far) = running(64 << 10);
    let sender = outbox.clone();
    let sending = tokio::spawn(async move {
        let mut most = 0;
        for id in 0..16 {
            sender.wait_for_space().await;
            sender.send(whole(&Value::String("x".repeat(1 << 20))));
            most = most.max(weight_of(&sender));
            assert!(id < 10 || most > MAX_QUEUED_BYTES, "it was never full");
        }
        sender.close();
        most
    });
    settle().await;
    assert!(outbox.is_full());
    assert!(!sending.is_finished());
    let mut all = Vec::new();
    far.read_to_end(&mut all).await.unwrap();
    assert_eq!(all.len(), 16 * ((1 << 20) + 3));
    assert!(sending.await.unwrap() < MAX_QUEUED_BYTES + (2 << 20));
    assert!(!outbox.is_full());
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn all_space_waiters_wake_despite_a_dropped_one() {
    let (outbox, _task, mut far) = running(64 << 10);
    outbox.send(whole(&Value::String("x".repeat(MAX_QUEUED_BYTES))));
    assert!(futures_util::FutureExt::now_or_never(outbox.wait_for_space()).is_none());
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let outbox = outbox.clone();
            tokio::spawn(async move { outbox.wait_for_space().await })
        })
        .collect();
    settle().await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    let mut all = vec![0; MAX_QUEUED_BYTES + 3];
    far.read_exact(&mut all).await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
}

#[tokio::test]
async fn closed_outbox_drains_and_takes_nothing_new() {
    let (outbox, task, mut far) = running(16);
    outbox.send(reply(1));
    outbox.send(reply(2));
    outbox.close();
    outbox.send(reply(3));
    let mut all = String::new();
    far.read_to_string(&mut all).await.unwrap();
    assert_eq!(all.lines().count(), 2, "{all}");
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn outbox_closes_when_last_handle_drops() {
    let (outbox, task, mut far) = running(16);
    let other = outbox.clone();
    drop(outbox);
    settle().await;
    other.send(reply(1));
    drop(other);
    let mut all = String::new();
    far.read_to_string(&mut all).await.unwrap();
    assert_eq!(all.lines().count(), 1);
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn outbox_of_gone_client_is_never_full() {
    let (outbox, task, far) = running(16);
    outbox.send(whole(&Value::String("x".repeat(2 * MAX_QUEUED_BYTES))));
    settle().await;
    assert!(outbox.is_full());
    let waiter = outbox.clone();
    let waiting = tokio::spawn(async move { waiter.wait_for_space().await });
    settle().await;
    drop(far);
    assert!(task.await.unwrap().is_err());
    waiting.await.unwrap();
    outbox.send(whole(&Value::String("x".repeat(2 * MAX_QUEUED_BYTES))));
    assert!(!outbox.is_full());
    assert_eq!(weight_of(&outbox), 0);
}

#[tokio::test]
async fn wait_for_space_returns_after_writer_drop() {
    let (outbox, writer) = Outbox::new(0);
    outbox.send(whole(&Value::String("x".repeat(2 * MAX_QUEUED_BYTES))));
    assert!(outbox.is_full());
    drop(writer);
    outbox.wait_for_space().await;
}

/// A stream that shows only flushed bytes.
#[derive(Clone, Default)]
struct Buffered(Arc<Mutex<Pages>>);

#[derive(Clone, Default)]
struct Pages {
    held: Vec<u8>,
    there: Vec<u8>,
    flushes: usize,
}

impl AsyncWrite for Buffered {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().held.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let pages = &mut *self.0.lock();
        pages.there.append(&mut pages.held);
        pages.flushes += 1;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn writer_flushes_when_queue_is_empty() {
    let (outbox, writer) = Outbox::new(usize::MAX);
    for id in 0..10_000 {
        outbox.send(reply(id));
    }
    let out = Buffered::default();
    let task = tokio::spawn(writer.run(out.clone(), Box::new(PlainEncoder)));
    settle().await;
    let pages = out.0.lock().clone();
    assert!(pages.held.is_empty());
    let lines = pages.there.iter().filter(|byte| **byte == b'\n');
    assert_eq!(lines.count(), 10_000);
    assert!((2..20).contains(&pages.flushes), "{}", pages.flushes);
    outbox.close();
    task.await.unwrap().unwrap();
}

/// Repeats the whole text with each delta.
#[derive(Default)]
struct Repeating(String);

impl EventEncoder for Repeating {
    fn encode(&mut self, event: Event, out: &mut JsonLines) {
        if let Body::TextDelta { text } = &event.body {
            self.0.push_str(text);
            out.push(&json!({ "delta": text, "whole": self.0 }));
        } else {
            out.push(&event);
        }
    }

    fn encode_run_end(&mut self, _: bool, _: &mut JsonLines) {}

    fn merge_threshold(&self) -> usize {
        0
    }
}

#[tokio::test(start_paused = true)]
async fn cumulative_text_output_is_rate_limited() {
    let (outbox, writer) = Outbox::new(0);
    let (near, mut far) = duplex(64 << 20);
    let task = tokio::spawn(writer.run(near, Box::<Repeating>::default()));
    let reading = tokio::spawn(async move {
        let mut out = String::new();
        far.read_to_string(&mut out).await.unwrap();
        out
    });
    let begun = Instant::now();
    for seq in 0..2000 {
        outbox.send(Item::Event(text(seq, &"x".repeat(500))));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap() + 1;
    outbox.close();
    task.await.unwrap().unwrap();
    let out = reading.await.unwrap();
    // Without pauses it would be a gigabyte.
    assert!(
        out.len() < (seconds + 1) * MAX_REPEATED_BYTES_PER_SECOND,
        "{}",
        out.len()
    );
    let frames = out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let pieces: Vec<Value> = frames.collect();
    assert!(pieces.len() > 100, "{}", pieces.len());
    let deltas: String = pieces
        .iter()
        .map(|frame| frame["delta"].as_str().unwrap())
        .collect();
    assert_eq!(deltas.len(), 1_000_000);
}

#[tokio::test(start_paused = true)]
async fn reply_after_delta_is_not_delayed() {
    let (outbox, writer) = Outbox::new(0);
    let (near, far) = duplex(64 << 20);
    tokio::spawn(writer.run(near, Box::<Repeating>::default()));
    outbox.send(Item::Event(text(1, &"x".repeat(5 << 20))));
    settle().await;
    outbox.send(Item::Event(text(2, "more")));
    settle().await;
    let begun = Instant::now();
    outbox.send(reply(1));
    let mut lines = BufReader::new(far).lines();
    let mut last = String::new();
    for _ in 0..3 {
        last = lines.next_line().await.unwrap().unwrap();
    }
    assert!(last.contains("\"id\":1"), "{last}");
    assert!(begun.elapsed() < Duration::from_millis(10));
}

//! `outlast rpc` under stress: stopped readers, endless completions, hostile lines, signals, lost files.

mod client;
mod endings;
mod lines;
mod places;
mod provider;

use crate::mock_server::{PLANTED, wait_for};
use crate::support::Outlast;
use client::Client;
use provider::Provider;
use serde::Deserialize;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// Limit for the silence of a provider, which must not be exceeded because the client does not read.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

fn in_real_time() -> Outlast {
    Outlast {
        scale: "1",
        ..Outlast::new()
    }
}

/// Starts a server whose provider streams a long completion.
fn start(outlast: &Outlast, provider: &Provider, mode: &str) -> Client {
    let arguments = [&["rpc", "--mode", mode], provider.arguments().as_slice()].concat();
    let mut client = Client::of(outlast.command(&arguments).env("OPENAI_API_KEY", PLANTED));
    client.state();
    client
}

/// The frames of a run that a client has read.
#[derive(Default)]
struct Seen {
    kinds: Vec<String>,
    /// The pieces of the completion, joined.
    pieces: String,
    /// The completion as reported at its end.
    whole: String,
    bytes: usize,
}

/// The parts of a frame that matter here; its texts are long.
#[derive(Deserialize)]
struct Frame {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "assistantMessageEvent")]
    update: Option<Update>,
    /// A piece of a completion, in the native dialect.
    text: Option<String>,
}

#[derive(Deserialize)]
struct Update {
    delta: Option<String>,
    /// The whole text, at its end.
    content: Option<String>,
}

/// Reads a run to its end.
fn read_run(client: &mut Client, last: &str) -> Seen {
    let mut seen = Seen::default();
    while seen.kinds.last().is_none_or(|kind| kind != last) {
        let line = client.line();
        assert!(line.ends_with('\n'), "the end came after {:?}", seen.kinds);
        let frame: Frame = serde_json::from_str(&line).unwrap();
        if frame.kind == "text_delta" {
            seen.pieces.extend(frame.text);
        }
        if let Some(update) = frame.update {
            seen.pieces.extend(update.delta);
            seen.whole.extend(update.content);
        }
        seen.bytes += line.len();
        seen.kinds.push(frame.kind);
    }
    seen
}

/// Runs all cases in parallel: they wait more than they work.
fn in_parallel<Case: Send>(cases: impl IntoIterator<Item = Case>, work: impl Fn(Case) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn({
                let work = &work;
                move || work(case)
            });
        }
    });
}

#[test]
fn stalled_reader_pauses_provider_and_loses_nothing() {
    let modes = [("rpc", "agent_settled"), ("native", "sealed")];
    in_parallel(modes, |(mode, last)| {
        // More than fits into the buffers between server and client.
        let provider = Provider::start(60_000, 400);
        let outlast = in_real_time();
        let limit = format!("[timeouts]\nidle = \"{}s\"\n", IDLE_TIMEOUT.as_secs());
        outlast.write("home/outlast.toml", limit);
        let mut client = start(&outlast, &provider, mode);
        let (before, _) = client.memory();
        client.prompt("go");
        wait_for("provider that is held up", || provider.is_held_up());
        std::thread::sleep(IDLE_TIMEOUT);
        assert!(!provider.is_done());
        let (_, most) = client.memory();
        let more = most - before;
        assert!(more < 48 * MIB, "{mode}: {} MiB more", more / MIB);
        let seen = read_run(&mut client, last);
        assert!(
            seen.pieces == provider.text(),
            "{mode}: the text is another"
        );
        if mode == "rpc" {
            assert!(seen.whole == provider.text());
            assert!(!seen.kinds.iter().any(|kind| kind == "auto_retry_start"));
            let count = |kind: &str| seen.kinds.iter().filter(|it| *it == kind).count();
            assert_eq!((count("agent_end"), count("agent_settled")), (1, 1));
            assert_eq!(seen.kinds[seen.kinds.len() - 2], "agent_end");
            // Queued pieces are merged; otherwise each would carry the whole text.
            assert!(count("message_update") < 1000, "{:?}", seen.kinds.len());
        }
        let ended = client.end();
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    });
}

#[test]
fn long_stream_does_not_resend_text_with_every_delta() {
    for (mode, last) in [("rpc", "agent_settled"), ("native", "sealed")] {
        let provider = Provider::start(52_429, 20);
        let outlast = in_real_time();
        let mut client = start(&outlast, &provider, mode);
        client.prompt("go");
        let seen = read_run(&mut client, last);
        let (bytes, whole) = (seen.bytes, provider.text().len());
        println!(
            "{mode}: {} frames, {} MiB",
            seen.kinds.len(),
            bytes as u64 / MIB
        );
        assert!(seen.pieces == provider.text());
        // With the whole text in every update it would be twenty-six thousand times as long.
        assert!(bytes < 1000 * whole, "{mode}: {bytes} bytes");
        let (_, most) = client.memory();
        assert!(most < 160 * MIB, "{mode}: {} MiB", most / MIB);
    }
}

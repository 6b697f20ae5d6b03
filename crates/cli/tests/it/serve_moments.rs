//! Subscribers that join in the middle of a turn see the same as those who were connected from its start.

use crate::rpc_driver::in_real_time;
use crate::serve_driver::transcript::Transcript;
use crate::serve_driver::{AN_HOUR, Serve, kinds, of_kind};
use crate::support::Outlast;
use serde_json::{Value, json};
use std::time::Duration;

const TOOLS: &str = "call grep {\"pattern\":\"x\"}\nand read {\"path\":\"missing\"}\ncall write {\"path\":\"a\",\"content\":\"b\"}\nsay done";
/// Keeps a turn busy until a file `go` exists.
const WAITS: &str = "call bash {\"command\": \"echo ran >> runs; until [ -e go ]; do sleep 0.02; done; echo gone\"}\nsay done";

/// The snapshot of a subscriber that joins now, and the stream after its cursor until the turn ends.
struct LateSubscriber {
    shown: Transcript,
    place: String,
}

impl LateSubscriber {
    fn comes(server: &Serve, id: &str) -> Self {
        let snapshot = server.snapshot(id);
        Self {
            shown: Transcript::of(snapshot["events"].as_array().unwrap()),
            place: snapshot["place"].as_str().unwrap().to_owned(),
        }
    }

    /// Returns its transcript at the given cursor.
    fn at_end(mut self, server: &Serve, id: &str, end: &str) -> Transcript {
        if self.place == end {
            return self.shown;
        }
        let mut lines = server.envelopes(id, &self.place);
        loop {
            let line = lines.try_next().unwrap().unwrap();
            self.shown.apply(&line["event"]);
            if line["place"] == end {
                return self.shown;
            }
        }
    }
}

#[test]
fn mid_turn_snapshot_and_later_events_match_live() {
    let outlast = in_real_time();
    outlast.write("home/outlast.toml", AN_HOUR);
    let script = "ok:text+ok:agent+overloaded:1+ok:agent,times=always";
    let server = Serve::with(&outlast, &["--model", script, "--allow", "bash"]);
    let id = server.session();
    let first = server.prompt_and_follow(&id, "hi").all();
    let mut stream = server.sse(&id, None);
    stream.next().unwrap();
    server.leave(&id, WAITS);
    let mut live = first.clone();
    let mut late = Vec::new();
    // While the tool runs.
    live.extend(stream.until("step-complete").into_iter().map(|it| it.data));
    late.push(LateSubscriber::comes(&server, &id));
    let so_far = kinds(&server.snapshot_events(&id));
    assert_eq!(so_far.last().map(String::as_str), Some("step-complete"));
    outlast.write("go", "");
    // During the wait before a retry, which is part of the snapshot.
    live.extend(stream.until("provider-retry").into_iter().map(|it| it.data));
    server.when_waiting(&id);
    late.push(LateSubscriber::comes(&server, &id));
    assert_eq!(server.snapshot_events(&id).last(), live.last());
    server.order(&id, "retry_now");
    let last = stream.until("sealed");
    live.extend(last.iter().map(|it| it.data.clone()));
    let end = &last.last().unwrap().id;
    late.push(LateSubscriber::comes(&server, &id));
    let live = Transcript::of(&live);
    assert_eq!(live.seals(), ["completed", "completed"]);
    for late in late {
        let place = late.place.clone();
        assert_eq!(late.at_end(&server, &id, end), live, "after {place}");
    }
    let runs = std::fs::read_to_string(outlast.folder.path().join("runs")).unwrap();
    assert_eq!(runs, "ran\n");
}

#[test]
fn snapshot_at_any_moment_and_later_events_match_live() {
    for after_content in ["fail", "retract"] {
        let outlast = Outlast {
            // At this speed a turn lasts long enough to be read more than once on a busy machine.
            scale: "200",
            ..Outlast::new()
        };
        let script = "overloaded:1+drip:1800,of=thinking-agent+drop-after:7,of=thinking-agent+overloaded:2+drip:1800,of=thinking-agent,times=always";
        let server = Serve::with(&outlast, &["--model", script]);
        let id = server.begin(&json!({ "after_content": after_content }));
        let mut stream = server.sse(&id, None);
        stream.next().unwrap();
        server.leave(&id, TOOLS);
        let mut late = Vec::new();
        loop {
            late.push(LateSubscriber::comes(&server, &id));
            if late.last().unwrap().shown.seals() == ["error"]
                || late.last().unwrap().shown.seals() == ["completed"]
            {
                break;
            }
            // The server limits an address to 1000 requests a second.
            std::thread::sleep(Duration::from_millis(2));
        }
        let live = stream.until("sealed");
        let end = &live.last().unwrap().id;
        let live: Vec<Value> = live.iter().map(|it| it.data.clone()).collect();
        let retracted = of_kind(&live, "retracted").len();
        assert_eq!(retracted, usize::from(after_content == "retract"));
        let live = Transcript::of(&live);
        late.dedup_by(|next, last| next.place == last.place);
        assert!(late.len() > 2, "{} moments", late.len());
        for late in late {
            let place = late.place.clone();
            let shown = late.at_end(&server, &id, end);
            assert!(
                shown == live,
                "{after_content}, after {place}: {shown:#?}\n{live:#?}"
            );
        }
    }
}

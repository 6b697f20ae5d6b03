//! Power failures: acknowledged entries survive, and no command runs twice.
//!
//! A prompt is recorded once, write by write. For every sync of it the disk is computed as if the power had failed
//! before it: without the unsynced writes, or with the beginning of them. `outlast resume` continues from there. An
//! entry is acknowledged when its event is on stdout.

use crate::kills::crew::server;
use crate::kills::plan::Plan;
use crate::kills::proof::Proof;
use crate::kills::scene::Scene;
use crate::kills::{SYNCS, boundary_of_the_prompt};
use crate::recorder::disk::{self, Disk, Files};
use crate::recorder::{Call, Counted, Moment, Record, Recorder};
use serde_json::Value;
use std::process::Command;

/// A process that came to its end, write by write.
struct Recording {
    /// The disk before it.
    before: Disk,
    log: Vec<Record>,
    /// Its entries at the end.
    entries: Vec<Value>,
}

/// One power failure.
struct PowerLoss {
    label: String,
    files: Files,
    /// The events that were on stdout before it.
    acknowledged: Vec<Value>,
}

impl Recording {
    fn of(scene: &mut Scene<'_>, command: impl Fn(&Scene<'_>) -> Command) -> Self {
        let before = Disk::of(&disk::read(&scene.home()));
        let recorder = Recorder::new(Counted::Everything);
        let ran = scene.run(recorder.record(command(scene).arg("--json")));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let (log, entries) = (recorder.log(), scene.entries());
        Self {
            before,
            log,
            entries,
        }
    }

    /// Returns a failure before every sync and at the end, each with none, some and all of the unsynced bytes.
    fn cuts(&self) -> Vec<PowerLoss> {
        let (mut disk, mut cuts) = (self.before.clone(), Vec::new());
        for (place, record) in self.log.iter().enumerate() {
            if record.call == Call::Sync {
                cuts.extend(self.cuts_at(place, &disk));
            }
            disk.apply(record);
        }
        cuts.extend(self.cuts_at(self.log.len(), &disk));
        cuts
    }

    fn cuts_at(&self, place: usize, disk: &Disk) -> Vec<PowerLoss> {
        let all = disk.unsynced();
        let mut survivors = vec![0, 1, all / 3, all / 2, all.saturating_sub(1), all];
        survivors.sort_unstable();
        survivors.dedup();
        let cut = |unsynced: &usize| PowerLoss {
            label: format!("call {place}, {unsynced} of {all} bytes survive"),
            files: disk.survivors(*unsynced),
            acknowledged: events(&self.log[..place]),
        };
        survivors.iter().map(cut).collect()
    }

    /// Returns how many entries these events acknowledge.
    fn promised(&self, acknowledged: &[Value]) -> usize {
        let mut steps = 0;
        let numbers = acknowledged.iter().filter_map(|event| {
            let (kind, for_event, of_entry) = entry_of(event)?;
            let mut entries = self.entries.iter().filter(|entry| {
                // An entry without such a field is the only one of its kind.
                entry["kind"] == kind && event[for_event] == entry[of_entry]
            });
            let entry = match kind {
                "message" => {
                    steps += 1;
                    entries.nth(steps - 1)
                }
                _ => entries.next(),
            };
            let entry = entry.unwrap_or_else(|| panic!("nothing is written down of {event}"));
            entry["seq"].as_u64()
        });
        usize::try_from(numbers.max().unwrap_or(0)).unwrap()
    }
}

/// Returns the events on stdout: whole lines only.
fn events(log: &[Record]) -> Vec<Value> {
    let output = log.iter().filter_map(|record| match &record.call {
        Call::Output { data } => Some(data.as_slice()),
        _ => None,
    });
    let output = String::from_utf8(output.collect::<Vec<_>>().concat()).unwrap();
    let whole = output.rfind('\n').map_or("", |end| &output[..end]);
    let lines = whole.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns the kind of entry that an event acknowledges, and the matching fields of event and entry.
fn entry_of(event: &Value) -> Option<(&'static str, &'static str, &'static str)> {
    Some(match event["type"].as_str().unwrap() {
        "input" => ("prompt", "", ""),
        "attempt_started" => ("attempt_started", "attempt", "attempt"),
        "retry_scheduled" => ("wait_scheduled", "retry_at", "until"),
        "tool_started" => ("tool_started", "id", "id"),
        "tool_result" => ("tool_finished", "id", "id"),
        "step_complete" => ("message", "", ""),
        "sealed" => ("settled", "", ""),
        // The pieces of a step are acknowledged when the step is complete.
        _ => return None,
    })
}

/// Writes the disk, resumes and checks the result.
fn play(scene: &mut Scene<'_>, recording: &Recording, cut: &PowerLoss) {
    scene.forget();
    scene.kills = 1;
    disk::write(&cut.files, &scene.home());
    scene.resume_all();
    let label = &cut.label;
    assert!(
        !scene.complained.contains("damaged") && !scene.complained.contains("cannot"),
        "{label}: {}",
        scene.complained
    );
    let (promised, entries) = (recording.promised(&cut.acknowledged), scene.entries());
    let is_kept = entries.get(..promised) == recording.entries.get(..promised);
    assert!(
        is_kept,
        "{label}: {promised} entries were acknowledged\nfound {entries:#?}\nof {:#?}",
        recording.entries
    );
    let proof = Proof::of(scene, label);
    proof.journal_holds();
    // The folder is that of the first run: a command that runs twice shows there.
    let acknowledged = |id: &Value| {
        let mut events = cut.acknowledged.iter();
        events.any(|event| event["type"] == "tool_started" && event["id"] == *id)
    };
    for (id, line) in proof.commands() {
        let times = scene.lines().iter().filter(|ran| **ran == line).count();
        let most = usize::from(!acknowledged(&id));
        assert!(times <= most, "{label}: {line} ran {times} times more");
    }
    let was_sealed = cut
        .acknowledged
        .iter()
        .any(|event| event["type"] == "sealed");
    let is_said = entries.is_empty() || scene.said.contains(&proof.answer());
    assert!(is_said || was_sealed, "{label}: nobody heard the answer");
}

fn play_all(scene: &mut Scene<'_>, recording: &Recording) {
    let events = events(&recording.log);
    assert_eq!(recording.promised(&events), recording.entries.len());
    let cuts = recording.cuts();
    for cut in &cuts {
        play(scene, recording, cut);
    }
    let syncs = recording.log.iter();
    let syncs = syncs.filter(|record| record.call == Call::Sync).count();
    println!("the power failed in {} ways at {syncs} syncs", cuts.len());
    assert!(syncs > 15, "{syncs} syncs");
}

#[test]
fn prompt_survives_power_loss_before_every_sync() {
    let (mock, plan) = (server(), Plan::all_kinds());
    let mut scene = Scene::new(&mock, &plan);
    let recording = Recording::of(&mut scene, |scene| scene.prompt());
    play_all(&mut scene, &recording);
}

#[test]
fn resume_survives_power_loss_before_every_sync() {
    let (mock, plan) = (server(), Plan::all_kinds());
    let first = (boundary_of_the_prompt(&plan), Moment::After);
    let mut scene = Scene::new(&mock, &plan);
    scene.run(Recorder::new(SYNCS).kill(&mut scene.prompt(), first.0, first.1));
    let recording = Recording::of(&mut scene, |scene| scene.resume());
    play_all(&mut scene, &recording);
}

//! All runs, in a line each.

use super::NO_RUNS;
use super::find::Home;
use crate::exit::Exit;
use crate::notice::notice;
use crate::output::{print, safe_json};
use outlast_agent::pipeline::entry::{Entry, Outcome};
use outlast_kernel::text;
use outlast_store::journal::{State, Summary};
use serde_json::{Value, json};

pub(super) async fn list(home: &Home, json: bool) -> anyhow::Result<Exit> {
    let mut runs = Vec::new();
    for run in home.runs.sessions().await? {
        let standing = standing(home, &run).await?;
        runs.push((run, standing));
    }
    if json {
        let rows: Value = runs.iter().map(row).collect();
        let json = serde_json::to_string_pretty(&rows)? + "\n";
        return print(&safe_json(&json));
    }
    if runs.is_empty() {
        notice(NO_RUNS);
        return Ok(Exit::Success);
    }
    let lines: String = runs.iter().map(line).collect();
    print(&text::plain(&lines))
}

/// How a run stands, in a word.
async fn standing(home: &Home, run: &Summary) -> anyhow::Result<&'static str> {
    match (run.state, run.open_turn) {
        (State::InUse, _) => return Ok("running"),
        (_, Some(_)) => return Ok("unfinished"),
        _ => {}
    }
    let Some(last) = home.runs.last(&run.id, "settled").await? else {
        return Ok("empty");
    };
    Ok(match serde_json::from_str(&last.line.body) {
        Ok(Entry::RunEnded { outcome, .. }) => match outcome {
            Outcome::Completed | Outcome::Continued => "completed",
            Outcome::Canceled => "cancelled",
            Outcome::Failed | Outcome::Skipped => "failed",
        },
        // A later version has written it.
        _ => "finished",
    })
}

fn row((run, standing): &(Summary, &'static str)) -> Value {
    json!({
        "id": run.id, "state": standing, "pipeline": run.title, "created": run.created,
        "changed": run.changed, "directory": run.directory, "entries": run.entries,
    })
}

fn line((run, standing): &(Summary, &'static str)) -> String {
    let Summary {
        id, changed, title, ..
    } = run;
    let title: Vec<&str> = title.split_whitespace().collect();
    format!("{id}  {changed}  {standing:<10}  {}\n", title.join(" "))
}

//! Lists all runs, one line each.

use super::NO_RUNS;
use crate::output::diagnostics::print_status;
use crate::output::{print, safe_json};
use crate::platform::exit::Exit;
use outlast_kernel::text;
use outlast_pipeline::run_store::RunStore;
use outlast_store::journal::Summary;
use serde_json::{Value, json};

pub(super) async fn list(home: &RunStore, json: bool) -> anyhow::Result<Exit> {
    let mut runs = Vec::new();
    for run in home.all().await? {
        let standing = home.status(&run).await?.as_str();
        runs.push((run, standing));
    }
    if json {
        let rows: Value = runs.iter().map(row).collect();
        let json = serde_json::to_string_pretty(&rows)? + "\n";
        return print(&safe_json(&json));
    }
    if runs.is_empty() {
        print_status(NO_RUNS);
        return Ok(Exit::Success);
    }
    let lines: String = runs.iter().map(line).collect();
    print(&text::plain(&lines))
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

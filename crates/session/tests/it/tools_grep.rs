//! `grep` over real files.

use crate::tools::{call, run, standard};
use outlast_engine::CancellationToken;
use outlast_session::tools::Toolbox;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Instant;
use tempfile::TempDir;

fn project() -> TempDir {
    let folder = TempDir::new().unwrap();
    let files = [
        (".gitignore", "target\n*.log\n"),
        (".hidden/file.rs", "needle\n"),
        ("b.rs", "one\nNeedle two\r\nneedle three\n"),
        ("a/z.rs", "needle\n"),
        ("a/y.txt", "no\nneedle"),
        ("a/run.log", "needle\n"),
        ("target/out.rs", "needle\n"),
        ("binary", "needle\n\0needle\n"),
    ];
    for (path, content) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder
}

async fn grep(folder: &Path, arguments: Value) -> String {
    let output = run(&standard(folder), "grep", arguments).await;
    assert!(!output.is_error, "{}", output.text);
    output.text
}

#[tokio::test]
async fn grep_lists_matches_in_order_and_skips_ignored_files() {
    let folder = project();
    let found = grep(folder.path(), json!({"pattern": "^needle"})).await;
    let expected = "a/y.txt:2: needle\na/z.rs:1: needle\nb.rs:3: needle three\nbinary:1: needle\n";
    assert_eq!(found, expected);
    let table = [
        (
            json!({"pattern": "needle", "glob": "*.rs"}),
            "a/z.rs:1: needle\nb.rs:3: needle three\n",
        ),
        (
            json!({"pattern": "needle", "glob": "!*.rs", "path": "a"}),
            "a/y.txt:2: needle\n",
        ),
        (
            json!({"pattern": "needle", "path": "a/z.rs"}),
            "a/z.rs:1: needle\n",
        ),
        (
            json!({"pattern": "TWO$", "ignore_case": true}),
            "b.rs:2: Needle two\n",
        ),
        (
            json!({"pattern": "needle", "path": ".hidden"}),
            ".hidden/file.rs:1: needle\n",
        ),
        (
            json!({"pattern": "needle", "path": "target"}),
            "target/out.rs:1: needle\n",
        ),
        (json!({"pattern": "haystack"}), "nothing found\n"),
        (
            json!({"pattern": "needle", "limit": 1}),
            "a/y.txt:2: needle\n[there is more: only the first 1 lines are shown]",
        ),
    ];
    for (arguments, expected) in table {
        assert_eq!(
            grep(folder.path(), arguments.clone()).await,
            expected,
            "{arguments}"
        );
    }
}

#[tokio::test]
async fn grep_of_missing_path_is_an_error() {
    let folder = project();
    let output = run(
        &standard(folder.path()),
        "grep",
        json!({"pattern": "a", "path": "nowhere"}),
    )
    .await;
    assert!(
        output.is_error && output.text.starts_with("nowhere: "),
        "{}",
        output.text
    );
}

#[tokio::test]
async fn grep_cuts_long_lines_around_match_and_bounds_output() {
    let folder = TempDir::new().unwrap();
    let long = format!("{}needle{}", "é".repeat(100_000), "x".repeat(100_000));
    fs::write(folder.path().join("long"), &long).unwrap();
    let found = grep(folder.path(), json!({"pattern": "needle"})).await;
    assert!(
        found.starts_with("long:1: …é") && found.contains("éneedlex"),
        "{found}"
    );
    assert!(
        found.ends_with("…\n") && found.len() < 1000 && !found.contains('\u{fffd}'),
        "{found}"
    );
    fs::write(folder.path().join("long"), format!("{long}\n").repeat(300)).unwrap();
    let found = grep(
        folder.path(),
        json!({"pattern": "needle", "limit": 100_000}),
    )
    .await;
    assert!(found.len() <= 64 * 1024 && found.contains("there is more"));
    let found = grep(folder.path(), json!({"pattern": "é"})).await;
    assert!(found.contains("only the first"), "{}", found.len());
}

/// The runtime waits for its threads when it is dropped, so a search that continued would show: it takes two thousand times
/// as long as that of one file.
#[test]
fn an_interrupted_search_ends() {
    const FILES: u32 = 2000;
    let folder = TempDir::new().unwrap();
    let first = folder.path().join("0");
    fs::write(&first, format!("needle\n{}", "hay\n".repeat(1 << 20))).unwrap();
    for number in 1..FILES {
        fs::hard_link(&first, folder.path().join(number.to_string())).unwrap();
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let pattern = "needle|straw{2,9}";
    let one_file = json!({"pattern": pattern, "path": "0"});
    let start = Instant::now();
    let found = runtime.block_on(run(&standard(folder.path()), "grep", one_file));
    let one_file = start.elapsed();
    assert_eq!(found.text, "0:1: needle\n");
    let grep = call("grep", json!({"pattern": pattern}));
    let cancel = CancellationToken::new();
    let start = Instant::now();
    let output = runtime.block_on(async {
        let tools = standard(folder.path());
        let stop = async {
            tokio::time::sleep(one_file).await;
            cancel.cancel();
        };
        tokio::join!(tools.run(&grep, cancel.clone()), stop).0
    });
    drop(runtime);
    let took = start.elapsed();
    assert!(
        took < one_file * (FILES / 4),
        "{took:?}, and one file {one_file:?}"
    );
    let end = "[`grep` was interrupted; it may have partly run]";
    assert!(
        output.is_error && output.text.ends_with(end),
        "{}",
        output.text
    );
}

#[cfg(unix)]
#[tokio::test]
async fn grep_ignores_links_and_pipes_and_refuses_outside_paths() {
    let (folder, elsewhere) = (project(), TempDir::new().unwrap());
    fs::write(elsewhere.path().join("secret"), "needle").unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("way-out")).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(folder.path().join("pipe"))
        .status();
    assert!(made.unwrap().success());
    let found = grep(folder.path(), json!({"pattern": "needle"})).await;
    assert!(!found.contains("secret"), "{found}");
    let refused = run(
        &standard(folder.path()),
        "grep",
        json!({"pattern": "needle", "path": "way-out"}),
    )
    .await;
    assert!(
        refused.text.contains("`grep` was not run") && refused.text.contains("outside"),
        "{}",
        refused.text
    );
    let outside = standard(folder.path()).with_allowed(["outside"]);
    let found = run(
        &outside,
        "grep",
        json!({"pattern": "needle", "path": "way-out"}),
    )
    .await;
    assert!(found.text.ends_with("secret:1: needle\n"), "{}", found.text);
}

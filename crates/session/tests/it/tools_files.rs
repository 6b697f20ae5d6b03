//! `read`, `write` and `edit` with real files.

use crate::tools::{call, run, standard};
use outlast_engine::CancellationToken;
use outlast_session::tools::{Output, Toolbox};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use tempfile::TempDir;

fn make_pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_file_is_read_in_parts() {
    let folder = TempDir::new().unwrap();
    let lines: String = (1..=5000)
        .map(|number| format!("line {number}\n"))
        .collect();
    fs::write(folder.path().join("long"), &lines).unwrap();
    fs::write(folder.path().join("short"), "a\r\nb").unwrap();
    fs::write(folder.path().join("empty"), "").unwrap();
    let tools = standard(folder.path());
    let table = [
        (json!({"path": "short"}), "a\r\nb"),
        (json!({"path": "./short", "offset": 2}), "b"),
        (
            json!({"path": folder.path().join("short"), "limit": 1}),
            "a\r\n[there is more: read on with offset 2]",
        ),
        (
            json!({"path": "long", "offset": 4999}),
            "line 4999\nline 5000\n",
        ),
        (json!({"path": "empty"}), "[the file is empty]"),
        (json!({"path": "empty", "offset": 7}), "[the file is empty]"),
    ];
    for (arguments, expected) in table {
        assert_eq!(run(&tools, "read", arguments).await, Output::ok(expected));
    }
    let first = run(&tools, "read", json!({"path": "long", "limit": 9000}))
        .await
        .text;
    assert!(first.ends_with("line 2000\n[there is more: read on with offset 2001]"));
    for offset in [5001, 9000] {
        let beyond = run(&tools, "read", json!({"path": "long", "offset": offset})).await;
        assert_eq!(beyond, Output::error("long: has 5000 lines only"));
    }
}

#[tokio::test]
async fn read_output_is_bounded_for_long_lines() {
    let folder = TempDir::new().unwrap();
    let line = "é".repeat(3_000_000);
    fs::write(folder.path().join("one-line"), format!("{line}\nnext\n")).unwrap();
    fs::write(
        folder.path().join("wide"),
        format!("{}\n", "x".repeat(1999)).repeat(100),
    )
    .unwrap();
    let tools = standard(folder.path());
    let text = run(&tools, "read", json!({"path": "one-line"})).await.text;
    let expected = format!(
        "{}… [5996001 more bytes in this line]\nnext\n",
        "é".repeat(2000)
    );
    assert_eq!(text, expected);
    let wide = run(&tools, "read", json!({"path": "wide"})).await.text;
    assert!(wide.len() <= 64 * 1024, "{}", wide.len());
    assert!(
        wide.ends_with("[there is more: read on with offset 33]"),
        "{}",
        &wide[wide.len() - 60..]
    );
}

#[tokio::test]
async fn special_and_binary_files_are_refused_without_hanging() {
    let folder = TempDir::new().unwrap();
    make_pipe(&folder.path().join("pipe"));
    fs::create_dir(folder.path().join("folder")).unwrap();
    fs::write(folder.path().join("binary"), b"text\0more").unwrap();
    fs::write(folder.path().join("latin"), b"caf\xe9\n").unwrap();
    let tools = standard(folder.path()).with_allowed(["outside", "write"]);
    let table = [
        ("pipe", "pipe: is not a regular file"),
        ("/dev/zero", "/dev/zero: is not a regular file"),
        ("folder", "folder: is a folder, not a file"),
        ("binary", "binary: is not text"),
        ("nowhere", "nowhere: No such file or directory (os error 2)"),
    ];
    for (path, expected) in table {
        assert_eq!(
            run(&tools, "read", json!({"path": path})).await,
            Output::error(expected)
        );
    }
    assert_eq!(
        run(&tools, "read", json!({"path": "latin"})).await,
        Output::ok("caf\u{fffd}\n")
    );
    for path in ["pipe", "/dev/zero", "folder", "."] {
        let written = run(&tools, "write", json!({"path": path, "content": ""})).await;
        assert!(
            written.is_error && written.text.contains(" is "),
            "{}",
            written.text
        );
        let edited = run(
            &tools,
            "edit",
            json!({"path": path, "old_text": "a", "new_text": "b"}),
        )
        .await;
        assert!(
            edited.is_error && edited.text.contains(" is "),
            "{}",
            edited.text
        );
    }
}

#[tokio::test]
async fn write_keeps_permissions_and_leaves_no_temp_files() {
    let folder = TempDir::new().unwrap();
    let script = folder.path().join("script");
    fs::write(&script, "old").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o750)).unwrap();
    symlink("script", folder.path().join("link")).unwrap();
    symlink("new/file", folder.path().join("hanging")).unwrap();
    let tools = standard(folder.path()).with_allowed(["write"]);
    for (path, content) in [
        ("link", "new"),
        ("deep/er/file", "deep"),
        ("hanging", "found"),
    ] {
        let written = run(&tools, "write", json!({"path": path, "content": content})).await;
        let expected = format!("wrote {} bytes to {path}", content.len());
        assert_eq!(written, Output::ok(expected));
        assert_eq!(
            fs::read_to_string(folder.path().join(path)).unwrap(),
            content
        );
    }
    assert!(folder.path().join("link").is_symlink() && folder.path().join("hanging").is_symlink());
    assert_eq!(
        fs::metadata(&script).unwrap().permissions().mode() & 0o7777,
        0o750
    );
    assert_eq!(
        names(folder.path()),
        ["deep", "hanging", "link", "new", "script"]
    );
    assert_eq!(names(&folder.path().join("deep/er")), ["file"]);
}

#[tokio::test]
async fn a_read_only_file_is_left_alone() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    let tools = standard(folder.path()).with_allowed(["write"]);
    let written = run(&tools, "write", json!({"path": "file", "content": "new"})).await;
    assert_eq!(written, Output::error("file: is read-only"));
    let edited = run(
        &tools,
        "edit",
        json!({"path": "file", "old_text": "old", "new_text": "new"}),
    )
    .await;
    assert_eq!(edited, Output::error("file: is read-only"));
    assert_eq!(names(folder.path()), ["file"]);
}

#[tokio::test]
async fn edit_changes_one_occurrence_or_nothing() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "one\r\ntwo\r\ntwo\r\n").unwrap();
    let tools = standard(folder.path()).with_allowed(["write"]);
    let edit = |old: &str, new: &str| {
        run(
            &tools,
            "edit",
            json!({"path": "file", "old_text": old, "new_text": new}),
        )
    };
    assert_eq!(edit("one\ntwo", "1\n2").await, Output::ok("changed file"));
    assert_eq!(edit("two", "x").await, Output::ok("changed file"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "1\r\n2\r\nx\r\n");
    let none = edit("two", "x").await;
    assert_eq!(
        none,
        Output::error("file: `old_text` does not occur in it; nothing was changed")
    );
    fs::write(&file, "two two two").unwrap();
    let many = edit("two", "x").await;
    assert_eq!(
        many,
        Output::error("file: `old_text` occurs 3 times in it, not once; nothing was changed")
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "two two two");
}

#[tokio::test]
async fn concurrent_edits_are_all_applied() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    let lines =
        |word: &str| -> String { (100..140).map(|line| format!("{word} {line}\n")).collect() };
    fs::write(&file, lines("old")).unwrap();
    let tools = standard(folder.path()).with_allowed(["write"]);
    let edits = (100..140).map(|line| {
        let (old, new) = (format!("old {line}"), format!("new {line}"));
        run(
            &tools,
            "edit",
            json!({"path": "file", "old_text": old, "new_text": new}),
        )
    });
    for output in futures_util::future::join_all(edits).await {
        assert_eq!(output, Output::ok("changed file"));
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), lines("new"));
}

#[tokio::test]
async fn too_long_content_is_not_written() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("long"), "a".repeat((16 << 20) + 1)).unwrap();
    let tools = standard(folder.path()).with_allowed(["write"]);
    let content = "x".repeat((16 << 20) + 1);
    let written = run(&tools, "write", json!({"path": "new", "content": content})).await;
    assert!(
        written.text.contains("`content` is longer than"),
        "{}",
        written.text
    );
    let edited = run(
        &tools,
        "edit",
        json!({"path": "long", "old_text": "b", "new_text": "c"}),
    )
    .await;
    assert!(edited.text.contains("longer than"), "{}", edited.text);
    assert_eq!(names(folder.path()), ["long"]);
}

#[tokio::test]
async fn path_or_link_outside_the_folder_is_refused() {
    let (folder, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::write(elsewhere.path().join("file"), "secret").unwrap();
    symlink(elsewhere.path(), folder.path().join("out")).unwrap();
    symlink(
        elsewhere.path().join("not-there"),
        folder.path().join("hanging"),
    )
    .unwrap();
    let tools = standard(folder.path()).with_allowed(["write"]);
    for path in ["out/file", "out/new", "hanging", "../x", "/etc/hosts"] {
        let calls = [
            ("read", json!({"path": path})),
            ("write", json!({"path": path, "content": "changed"})),
            (
                "edit",
                json!({"path": path, "old_text": "secret", "new_text": "changed"}),
            ),
        ];
        for (name, arguments) in calls {
            let refusal = tools.admit(&call(name, arguments)).await.unwrap_err();
            assert!(
                refusal.starts_with(&format!("`{name}` was not run: ")),
                "{refusal}"
            );
            assert!(
                refusal.contains("is outside of the working folder"),
                "{refusal}"
            );
        }
    }
    assert_eq!(names(elsewhere.path()), ["file"]);
}

#[tokio::test]
async fn path_outside_folder_at_run_time_is_refused() {
    let (folder, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let tools = standard(folder.path()).with_allowed(["write"]);
    let write = call("write", json!({"path": "sub/file", "content": "x"}));
    tools.admit(&write).await.unwrap();
    symlink(elsewhere.path(), folder.path().join("sub")).unwrap();
    let output = tools.run(&write, CancellationToken::new()).await;
    assert!(
        output.is_error && output.text.contains("leads outside"),
        "{}",
        output.text
    );
    assert!(names(elsewhere.path()).is_empty());
}

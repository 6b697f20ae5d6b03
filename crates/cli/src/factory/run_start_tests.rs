use super::*;
use std::collections::BTreeMap;
use std::fs;
use tempfile::TempDir;

const PIPELINE: &str = "inputs: {topic: , tone: calm}\nsteps: [{id: a, command: 'true'}]\n";

fn folder(source: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("pipeline.yaml"), source).unwrap();
    folder
}

fn wanted(inputs: &[(&str, &str)]) -> NewRun {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    NewRun {
        file: "pipeline.yaml".into(),
        directory: None,
        inputs: inputs.iter().map(owned).collect::<BTreeMap<_, _>>(),
    }
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[test]
fn pipeline_fault_reports_line_and_column() {
    let folder = folder("steps:\n  - {id: a, comand: ls}\n");
    let error = check(folder.path(), wanted(&[])).unwrap_err();
    let StartError::Faults(faults) = error else {
        panic!("{error:?}");
    };
    let first = &faults.list[0];
    assert_eq!((first.line, first.column), (2, 13), "{faults}");
    assert!(first.message.contains("did you mean `command`"), "{faults}");
}

#[test]
fn invalid_input_or_missing_file_is_refused() {
    let folder = folder(PIPELINE);
    let long = "x".repeat(MAX_INPUT_BYTES + 1);
    let table = [
        (wanted(&[]), "the pipeline needs the input `topic`"),
        (
            wanted(&[("topic", "birds"), ("tpoic", "b")]),
            "the pipeline has no input `tpoic`; there are tone, topic",
        ),
        (
            wanted(&[("topic", &long)]),
            "the input `topic` is not a text of at most 100000 bytes",
        ),
        (
            wanted(&[("topic", "a\0b")]),
            "the input `topic` is not a text of at most 100000 bytes",
        ),
        (
            NewRun {
                file: "other.yaml".into(),
                ..wanted(&[])
            },
            "there is no file ",
        ),
        (
            NewRun {
                file: "/dev/zero".into(),
                ..wanted(&[])
            },
            "there is no file /dev/zero",
        ),
        (
            NewRun {
                directory: Some("nowhere".into()),
                ..wanted(&[])
            },
            "there is no folder ",
        ),
    ];
    for (wanted, expected) in table {
        let error = check(folder.path(), wanted).unwrap_err();
        let said = error.to_string();
        assert!(
            matches!(error, StartError::Refused { .. }) && said.starts_with(expected),
            "{said}"
        );
    }
}

#[test]
fn checked_run_carries_file_folder_and_inputs() {
    let folder = folder(PIPELINE);
    fs::create_dir(folder.path().join("work")).unwrap();
    let wanted = NewRun {
        file: "../pipeline.yaml".into(),
        directory: Some("work".into()),
        ..wanted(&[("topic", "--allow=bash = x")])
    };
    let checked = check(folder.path(), wanted).unwrap();
    let root = folder.path().canonicalize().unwrap();
    assert_eq!(checked.folder, root.join("work"));
    let file = root.join("work/../pipeline.yaml").into_os_string();
    let expected = ["run", "--detached", "--input=topic=--allow=bash = x"].map(OsString::from);
    let expected: Vec<OsString> = expected.into_iter().chain([file]).collect();
    assert_eq!(arguments(&checked), expected);
}

#[tokio::test]
async fn run_process_survives_closed_pipes_after_printing_its_id() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, done) = (folder.path().join("pipe"), folder.path().join("done"));
    // The process goes on only when it is let, and then writes output that nobody reads.
    let script = format!(
        "mkfifo {0}; echo some-id; trap '' PIPE; read line < {0}; echo x; echo x >&2; echo x > {1}",
        pipe.display(),
        done.display()
    );
    let id = spawn_and_read_id(shell(&script), START_TIMEOUT)
        .await
        .unwrap();
    assert_eq!(id, "some-id");
    fs::write(&pipe, "go\n").unwrap();
    let is_done = async {
        while !done.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(START_TIMEOUT, is_done).await.unwrap();
}

#[tokio::test]
async fn start_error_reports_process_stderr_or_exit_status() {
    let table = [
        ("echo 'error: no such model' >&2; exit 2", "no such model"),
        (
            "echo 'error: the disk is full' >&2; exit 1",
            "the run could not be begun: the disk is full",
        ),
        (
            "kill -9 $$",
            "the run could not be begun: its process ended with signal: 9 (SIGKILL)",
        ),
        ("printf half; echo 'error: halved' >&2; exit 2", "halved"),
    ];
    for (script, expected) in table {
        let error = spawn_and_read_id(shell(script), START_TIMEOUT)
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    // Long output does not block the process, and little of it is kept.
    let much = "yes error | head -c 1000000 >&2; exit 2";
    let error = spawn_and_read_id(shell(much), START_TIMEOUT)
        .await
        .unwrap_err();
    assert!(error.to_string().len() <= text::MAX_MESSAGE_BYTES);
}

#[tokio::test]
async fn silent_process_fails_after_start_timeout() {
    let patience = Duration::from_millis(50);
    let announced = spawn_and_read_id(shell("exec sleep 600"), patience);
    let soon = tokio::time::timeout(START_TIMEOUT / 2, announced);
    let error = soon.await.unwrap().unwrap_err();
    assert!(matches!(error, StartError::Failed { .. }), "{error}");
}

#[tokio::test]
async fn missing_program_fails_to_start() {
    let folder = folder(PIPELINE);
    let starter = RunStarter {
        program: folder.path().join("gone"),
        folder: folder.path().to_owned(),
    };
    let error = starter.start(wanted(&[("topic", "x")])).await.unwrap_err();
    assert!(matches!(error, StartError::Failed { .. }), "{error}");
    assert!(RunStarter::new(folder.path()).is_ok());
}

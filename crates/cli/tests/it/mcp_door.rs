//! MCP servers through the command: configuration, permissions, calls, and messages about servers that
//! cannot be used.

use crate::support::Outlast;

/// The scripted model that calls the tools in the prompt.
#[cfg(feature = "mcp")]
const AGENT: &str = "ok:agent,times=always";

const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../session/tests/it/mcp_server.sh"
);

/// Returns the settings of a server that logs its requests to a file of that folder.
fn settings(outlast: &Outlast) -> String {
    let log = outlast.folder.path().join("log");
    format!(
        "[mcp.notes]\ncommand = \"/bin/sh '{SCRIPT}'\"\nenv = {{ LOG = \"{}\" }}\n",
        log.display()
    )
}

#[cfg(not(feature = "mcp"))]
#[test]
fn mcp_setting_without_mcp_feature_is_an_error() {
    let outlast = Outlast::new();
    outlast.write("home/outlast.toml", settings(&outlast));
    let ran = outlast.run(&["-p", "hi", "--model", "ok"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("mcp.notes: ") && ran.stderr.contains("--features mcp"),
        "{}",
        ran.stderr
    );
    let ran = outlast.run(&["-p", "hi", "--model", "ok", "--no-tools"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

#[test]
fn untrusted_project_starts_no_mcp_server() {
    let outlast = Outlast::new();
    outlast.write("outlast.toml", settings(&outlast));
    let ran = outlast.run(&["-p", "hi", "--model", "ok", "--allow", "mcp"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stderr
            .contains("ignoring mcp.notes.command, mcp.notes.env.LOG"),
        "{}",
        ran.stderr
    );
    assert!(!outlast.folder.path().join("log").exists());
}

#[test]
fn invalid_mcp_settings_are_usage_errors() {
    let table = [
        (
            "[mcp.notes]\ntimeout = 5\n",
            "MCP server `notes`: `command` is missing",
        ),
        (
            "[mcp.notes]\ncommand = \"'a\"\n",
            "MCP server `notes`: `command` has a ' that is not closed",
        ),
        (
            "[mcp.notes]\ncommand = \"a\"\neffects = \"b\"\n",
            "MCP server `notes`: `effects`: expected `tool=pure`",
        ),
        (
            "[mcp.bash]\ncommand = \"a\"\n",
            "allowed here: a name of at most 24 letters",
        ),
        (
            "[tools]\nallow = \"notes\"\n",
            "there is nothing to allow called `notes`; there are write, edit, bash, outside, mcp",
        ),
    ];
    for (settings, expected) in table {
        let outlast = Outlast::new();
        outlast.write("home/outlast.toml", settings);
        let ran = outlast.run(&["-p", "hi", "--model", "ok"]);
        assert_eq!(ran.code, 2, "{settings}");
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
}

#[cfg(feature = "mcp")]
mod built_in {
    use super::{AGENT, settings};
    use crate::mock_server::wait_for;
    use crate::support::{CommandResult, Outlast};
    use std::fs;

    const CALL: &str = "call mcp__notes__echo {\"text\":\"you\"}";

    fn outlast(settings: &str) -> Outlast {
        // With a scaled clock, a call would soon time out.
        let outlast = Outlast {
            scale: "1",
            ..Outlast::new()
        };
        outlast.write("home/outlast.toml", settings);
        outlast
    }

    fn ask(outlast: &Outlast, further: &[&str]) -> CommandResult {
        let arguments = [&["-p", CALL, "--model", AGENT], further].concat();
        CommandResult::of(outlast.command(&arguments).env("PATH", "/usr/bin:/bin"))
    }

    /// Returns the process ids that the server logged, and its other log lines.
    fn noted(outlast: &Outlast) -> (Vec<String>, Vec<String>) {
        let log = fs::read_to_string(outlast.folder.path().join("log")).unwrap_or_default();
        let lines = log.lines().map(str::to_owned);
        let (pids, rest): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with("pid "));
        let pid = |line: &String| line.trim_start_matches("pid ").to_owned();
        (pids.iter().map(pid).collect(), rest)
    }

    #[test]
    fn allowed_mcp_tool_runs_and_server_ends_with_prompt() {
        for allow in ["mcp", "notes", "mcp__notes__echo"] {
            let outlast = outlast("");
            outlast.write("home/outlast.toml", settings(&outlast));
            let ran = ask(&outlast, &["--allow", allow]);
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            assert_eq!(ran.stdout, "Done after 1 steps. heard you\n");
            let (pids, rest) = noted(&outlast);
            assert_eq!((pids.len(), rest), (1, vec!["echo".to_owned()]));
            wait_for("end of the server", || {
                !fs::exists(format!("/proc/{}", pids[0])).unwrap()
            });
        }
    }

    #[test]
    fn mcp_server_is_not_started_without_permission() {
        let outlast = outlast("");
        outlast.write("home/outlast.toml", settings(&outlast));
        let ran = ask(&outlast, &["--allow", "bash"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(
            ran.stdout
                .contains("`mcp__notes__echo` was not run: it is not allowed here"),
            "{}",
            ran.stdout
        );
        assert_eq!(noted(&outlast), (vec![], vec![]));
    }

    #[test]
    fn mcp_server_that_fails_to_start_is_a_warning() {
        let outlast = outlast("[mcp.notes]\ncommand = \"/no/such/program\"\n");
        let ran = ask(&outlast, &["--allow", "mcp"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let warning =
            "warning: the MCP server `notes` could not be started: /no/such/program: No such file";
        assert!(ran.stderr.contains(warning), "{}", ran.stderr);
        assert!(
            ran.stdout.starts_with("Done after 1 steps."),
            "{}",
            ran.stdout
        );
    }
}

#[cfg(feature = "mcp")]
#[test]
fn slow_mcp_server_start_is_reported() {
    let outlast = Outlast::new();
    let script = "sleep 3; echo 'no database' >&2";
    let settings = format!("[mcp.slow]\ncommand = \"sh -c \\\"{script}\\\"\"\n");
    outlast.write("home/outlast.toml", settings);
    let ran = outlast.run(&["-p", "hi", "--model", "ok", "--allow", "mcp"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(
        ran.stderr,
        "● waiting for the MCP servers to start…\n\
         warning: the MCP server `slow` does not work: it ended before it had introduced itself; it said: no database\n"
    );
}

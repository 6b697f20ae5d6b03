//! `outlast completions`: scripts that the shells accept, with every command and option.

use super::all;
use crate::support::{CommandResult, Outlast};
use std::process::Command;

fn script(shell: &str) -> String {
    let ran = Outlast::new().run(&["completions", shell]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{shell}");
    ran.stdout
}

/// Returns the completions of bash for these words, the last of which is incomplete.
fn offered(outlast: &Outlast, words: &[&str]) -> Vec<String> {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let (last, before) = (words.len() - 1, words.len().saturating_sub(2));
    let asks = format!(
        "source ./outlast.bash && COMP_WORDS=({}) && COMP_CWORD={last} && _outlast outlast {} {}
         complete -p outlast >&2 && printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        quoted.join(" "),
        quoted[last],
        quoted[before],
    );
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &asks]);
    let ran = CommandResult::of(bash.current_dir(outlast.folder.path()));
    assert_eq!(ran.code, 0, "{words:?}: {}", ran.stderr);
    assert!(ran.stderr.contains("_outlast"), "{}", ran.stderr);
    ran.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_subcommands_and_options() {
    let outlast = Outlast::new();
    outlast.write("outlast.bash", script("bash"));
    let mut check = Command::new("bash");
    let checked = CommandResult::of(
        check
            .args(["-n", "outlast.bash"])
            .current_dir(outlast.folder.path()),
    );
    assert_eq!((checked.code, checked.stderr.as_str()), (0, ""));
    assert_eq!(offered(&outlast, &["outlast", "gat"]), ["gateway"]);
    let sessions = offered(&outlast, &["outlast", "sessions", ""]);
    for name in ["list", "show", "export", "compact", "delete"] {
        assert!(sessions.iter().any(|word| word == name), "{sessions:?}");
    }
    let options = offered(&outlast, &["outlast", "runs", "delete", "--o"]);
    assert_eq!(options, ["--older-than"]);
    let shells = offered(&outlast, &["outlast", "completions", ""]);
    for name in ["bash", "elvish", "fish", "powershell", "zsh"] {
        assert!(shells.iter().any(|word| word == name), "{shells:?}");
    }
}

#[test]
fn every_completion_script_has_all_commands_and_options() {
    let helps = all();
    let shells = [
        ("bash", "_outlast() {"),
        ("zsh", "#compdef outlast"),
        ("fish", "complete -c outlast"),
        ("elvish", "set edit:completion:arg-completer[outlast]"),
        (
            "powershell",
            "Register-ArgumentCompleter -Native -CommandName 'outlast'",
        ),
    ];
    for (shell, mark) in shells {
        let script = script(shell);
        assert!(script.contains(mark), "{shell}");
        for help in &helps {
            for name in &help.names {
                assert!(script.contains(name.as_str()), "{shell}: {name}");
            }
            for option in help.options() {
                // fish names options without their dashes.
                let named = match shell {
                    "fish" => format!("-l {}", option.trim_start_matches('-')),
                    _ => option.to_owned(),
                };
                assert!(
                    script.contains(&named),
                    "{shell}: {} {option}",
                    help.title()
                );
            }
        }
    }
}

/// Runs the shells themselves where they are installed; the test above runs everywhere.
#[test]
fn installed_shells_accept_their_script() {
    let outlast = Outlast::new();
    for (shell, flag) in [("zsh", "-n"), ("fish", "--no-execute")] {
        outlast.write(shell, script(shell));
        let mut command = Command::new(shell);
        command
            .args([flag, shell])
            .current_dir(outlast.folder.path());
        match command.output() {
            Ok(output) => assert!(output.status.success(), "{shell}: {output:?}"),
            Err(_) => println!("{shell} is not installed: only the form of its script is checked"),
        }
    }
}

#[test]
fn unknown_shell_error_lists_known_shells() {
    let ran = Outlast::new().run(&["completions", "tcsh"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("bash, elvish, fish, powershell, zsh"));
}

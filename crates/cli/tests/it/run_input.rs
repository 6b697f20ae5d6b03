//! Invalid files and arguments: reported with line and column, and no run begins.

use crate::run_driver::FILE;
use crate::support::Outlast;

#[test]
fn invalid_pipeline_is_refused_with_line_and_column() {
    let table = [
        ("", "1:1: "),
        ("steps: []\n", "1:8: "),
        ("steps:\n  - {id: a}\n", "2:5: "),
        ("steps:\n  - {id: a, command: ls, prompt: hi}\n", "2:"),
        (
            "steps:\n  - {id: a, comand: ls}\n",
            "did you mean `command`",
        ),
        (
            "steps:\n  - {id: a, command: ls}\n  - {id: a, command: ls}\n",
            "3:10: ",
        ),
        (
            "steps:\n  - {id: a, command: ls, needs: [b]}\n  - {id: bb, command: ls}\n",
            "2:34: ",
        ),
        (
            "steps:\n  - {id: a, command: ls, needs: [b]}\n  - {id: b, command: ls, needs: [a]}\n",
            "circle",
        ),
        (
            "steps:\n  - {id: a, command: ls, retry: {policy: brave}}\n",
            "2:42: ",
        ),
        (
            "steps:\n  - {id: a, command: ls, retry: {max_attempts: 0}}\n",
            "2:48: ",
        ),
        (
            "steps:\n  - {id: a, command: ls, timeout: soon}\n",
            "2:35: ",
        ),
        ("steps:\n  - {id: a, command: 'ls {{ x }}'}\n", "2:22: "),
        (
            "steps:\n  - {id: a, prompt: 'about {{ topic }}'}\n",
            "topic",
        ),
        ("steps:\n  - {id: a b, command: ls}\n", "2:10: "),
        (
            "steps:\n  - {id: a, command: ls, on_failure: rework}\n",
            "rework_step",
        ),
        (
            "steps:\n  - {id: a, command: ls, contracts: [{type: regex, pattern: '('}]}\n",
            "2:",
        ),
        ("steps: [\n", "1:8: "),
        (
            "a: &a [x, x]\nb: &b [*a, *a]\nsteps:\n  - {id: a, command: ls}\n",
            ":",
        ),
    ];
    for (source, expected) in table {
        let outlast = Outlast::new();
        outlast.write(FILE, source);
        for arguments in [&["run", FILE][..], &["run", FILE, "--check"]] {
            let ran = outlast.run(arguments);
            assert_eq!(
                (ran.code, ran.stdout.as_str()),
                (2, ""),
                "{source}\n{}",
                ran.stderr
            );
            let first = ran.stderr.lines().next().unwrap();
            let place = first
                .strip_prefix("pipeline.yaml:")
                .and_then(|rest| rest.split_once(": "));
            let place = place.map(|(place, _)| {
                place
                    .split(':')
                    .map(str::parse::<u32>)
                    .filter(Result::is_ok)
                    .count()
            });
            assert_eq!(place, Some(2), "{source}\n{}", ran.stderr);
            assert!(ran.stderr.contains(expected), "{source}\n{}", ran.stderr);
        }
        assert!(!outlast.home().exists(), "something was begun: {source}");
    }
}

#[test]
fn all_pipeline_errors_are_reported_together() {
    let outlast = Outlast::new();
    outlast.write(
        FILE,
        "runtime: {fallbacks: {claude: [clodex]}}\nsteps:\n  - {id: fetch, command: ls, tools: true}\n  - {id: review, prompt: hi, needs: [fecth]}\n",
    );
    let ran = outlast.run(&["run", FILE, "--check"]);
    assert_eq!(ran.code, 2);
    insta::assert_snapshot!(ran.stderr);
}

#[test]
fn invalid_run_arguments_start_no_run() {
    let outlast = Outlast::new();
    let source = "inputs: {topic: , mood: calm}\nsteps:\n  - {id: a, command: ls}\n";
    outlast.write(FILE, source);
    let table: [(&[&str], &str); 6] = [
        (&[FILE], "error: the pipeline needs --input topic=…\n"),
        (
            &[FILE, "--input", "tpoic=x"],
            "error: the pipeline has no input `tpoic`; there are mood, topic\n",
        ),
        (
            &[FILE, "--input", "topic"],
            "error: --input topic: expected NAME=VALUE\n",
        ),
        (
            &[FILE, "--input", "topic=x", "--folder", "nowhere"],
            "error: there is no folder nowhere: No such file or directory (os error 2)\n",
        ),
        (
            &[FILE, "--input", "topic=x", "--policy", "brave"],
            "error: there is no policy `brave`; there are none, standard, aggressive, patient, conservative, session, overnight, gateway\n",
        ),
        (
            &["nothing.yaml"],
            "error: cannot read the pipeline nothing.yaml: No such file or directory (os error 2)\n",
        ),
    ];
    for (arguments, expected) in table {
        let ran = outlast.run(&[&["run"], arguments].concat());
        assert_eq!(
            (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
            (2, "", expected),
            "{arguments:?}"
        );
    }
    let begun = outlast.run(&["runs", "list", "--json"]).stdout;
    assert_eq!(begun, "[]\n", "something was begun");
    let ran = outlast.run(&["run", FILE, "--check"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "pipeline.yaml: 1 steps, nothing wrong\n")
    );
}

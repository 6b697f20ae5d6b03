//! Contracts of a step as a whole, with real commands and a scripted judge.

use super::*;
use crate::definition::{CommandLine, OUTPUT, OnFailure, Prompt, Retry, Work};
use outlast_engine::clock::WallClock;
use outlast_kernel::policy::Policy;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

/// A judge that answers from a list, and records its prompts.
#[derive(Default)]
struct ScriptedJudge {
    answers: Mutex<Vec<Result<String, Problem>>>,
    prompts: Mutex<Vec<String>>,
    /// Whether the judge never answers after the end of the list.
    is_silent: bool,
}

impl ScriptedJudge {
    fn new(answers: &[&str]) -> Self {
        let answers = answers.iter().map(|it| Ok((*it).to_owned())).collect();
        Self {
            answers: Mutex::new(answers),
            ..Self::default()
        }
    }

    fn prompt_count(&self) -> usize {
        self.prompts.lock().unwrap().len()
    }
}

impl JudgeClient for ScriptedJudge {
    fn ask<'a>(&'a self, _: &'a Judge, prompt: String) -> BoxFuture<'a, Result<String, Problem>> {
        self.prompts.lock().unwrap().push(prompt);
        let mut answers = self.answers.lock().unwrap();
        match (answers.is_empty(), self.is_silent) {
            (false, _) => Box::pin(std::future::ready(answers.remove(0))),
            (true, true) => Box::pin(std::future::pending()),
            (true, false) => {
                let nobody = Problem::new(Cause::Internal, "nobody was to be asked");
                Box::pin(std::future::ready(Err(nobody)))
            }
        }
    }
}

fn step(contracts: Vec<Contract>) -> Step {
    Step {
        id: "draft".into(),
        needs: Vec::new(),
        work: Work::Prompt(Prompt::default()),
        inputs: BTreeMap::new(),
        outputs: Vec::new(),
        contracts,
        env: BTreeMap::new(),
        directory: PathBuf::new(),
        timeout: None,
        retry: Retry {
            policy: Policy::named("standard").unwrap(),
            is_explicit: false,
        },
        on_failure: OnFailure::Fail,
        once: false,
        max_visits: NonZeroU32::MIN,
        edges: Vec::new(),
        is_on_demand: false,
        parent_loop: None,
    }
}

fn fails(rule: Rule) -> Contract {
    Contract {
        artifact: OUTPUT.into(),
        rule,
        is_warning_only: false,
    }
}

fn warns(rule: Rule) -> Contract {
    Contract {
        is_warning_only: true,
        ..fails(rule)
    }
}

fn tests(line: &str) -> Rule {
    Rule::TestSuite {
        command: CommandLine::Shell(line.into()),
        timeout: None,
    }
}

fn regex(pattern: &str) -> Rule {
    Rule::Regex {
        pattern: pattern.into(),
        negated: false,
    }
}

fn schema() -> Rule {
    Rule::JsonSchema {
        schema: serde_json::json!({"type": "object", "required": ["title"]}),
    }
}

fn judge() -> Rule {
    Rule::Judge(Judge {
        criteria: vec!["It is short.".into()],
        threshold_percent: 100,
        provider: None,
        model: None,
    })
}

const MET: &str = r#"{"criteria": [{"number": 1, "met": true, "why": "three words"}]}"#;
const UNMET: &str = r#"{"criteria": [{"number": 1, "met": false, "why": "it rambles"}]}"#;

/// The working directory of a step, and its stop signal.
struct Workspace {
    folder: tempfile::TempDir,
    stop: CancellationToken,
}

impl Workspace {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            stop: CancellationToken::new(),
        }
    }

    async fn check(
        &self,
        contracts: Vec<Contract>,
        output: &str,
        judge_client: &ScriptedJudge,
    ) -> Result<CheckOutcome, Problem> {
        let artifacts = BTreeMap::from([(OUTPUT.to_owned(), output.as_bytes().to_vec())]);
        check(&CheckContext {
            step: &step(contracts),
            artifacts: &artifacts,
            directory: self.folder.path(),
            env: &[("INPUT_TOPIC".into(), "a \"b\" $(c)".into())],
            hidden_variables: &["PATH_TO_KEYS".into()],
            judge_client,
            stop: &self.stop,
            on_output: &|_| {},
            clock: &WallClock::default(),
        })
        .await
    }
}

async fn check_in_new_workspace(
    contracts: Vec<Contract>,
    output: &str,
) -> Result<CheckOutcome, Problem> {
    Workspace::new()
        .check(contracts, output, &ScriptedJudge::default())
        .await
}

#[tokio::test]
async fn cheap_contracts_are_all_checked_and_reported_together() {
    let contracts = vec![
        fails(schema()),
        fails(regex("^ok")),
        fails(Rule::FileExists {
            path: "out/plan.md".into(),
            non_empty: true,
        }),
        fails(Rule::NonEmpty),
    ];
    let problem = check_in_new_workspace(contracts, "{\"name\": 1}")
        .await
        .unwrap_err();
    assert_eq!(problem.class, Class::ContractFailure);
    // The schema says more than that something is broken.
    assert_eq!(problem.cause, Cause::SchemaMismatch);
    assert_eq!(
        problem.message,
        "`output` does not match its schema: $: \"title\" is a required property; \
         `output` does not match `^ok`; `out/plan.md` is not there"
    );
    assert_eq!(
        problem.violations,
        [
            "$ of `output`: \"title\" is a required property (value: an object of 1)",
            "`output` does not match `^ok`: it begins with \"{\\\"name\\\": 1}\"",
            "`out/plan.md` is not there",
        ]
    );
}

#[tokio::test]
async fn malformed_output_outranks_other_violations() {
    for contracts in [
        vec![fails(regex("^ok")), fails(schema())],
        vec![fails(schema()), fails(regex("^ok"))],
    ] {
        let problem = check_in_new_workspace(contracts, "no JSON")
            .await
            .unwrap_err();
        assert_eq!(problem.cause, Cause::MalformedOutput);
        assert_eq!(problem.violations.len(), 2);
    }
}

#[tokio::test]
async fn contract_on_missing_artifact_is_broken() {
    let contract = Contract {
        artifact: "plan".into(),
        ..fails(schema())
    };
    let problem = check_in_new_workspace(vec![contract], "{}")
        .await
        .unwrap_err();
    assert_eq!(problem.cause, Cause::ContractBroken);
    assert_eq!(problem.violations, ["`plan` was not made"]);
}

#[tokio::test]
async fn warning_only_contracts_never_fail() {
    let contracts = vec![
        warns(regex("^ok")),
        warns(schema()),
        warns(tests("echo sum is wrong; exit 1")),
        warns(tests("no-such-program-anywhere")),
        warns(judge()),
    ];
    let answers = ScriptedJudge::default();
    let refused = Problem::new(Cause::Billing, "no credit");
    answers.answers.lock().unwrap().push(Err(refused));
    let checked = Workspace::new()
        .check(contracts, "hm", &answers)
        .await
        .unwrap();
    let expected = [
        "`output` does not match `^ok`",
        "`output` is not JSON: line 1",
        "`echo sum is wrong; exit 1` ended with exit code 1",
        "could not be checked: ",
        "could not be checked: no credit",
    ];
    assert_eq!(checked.warnings.len(), expected.len(), "{checked:?}");
    for (warning, beginning) in checked.warnings.iter().zip(expected) {
        assert!(warning.starts_with(beginning), "{warning}");
    }
}

#[tokio::test]
async fn ceiling_reached_while_judging_is_an_error() {
    let answers = ScriptedJudge::default();
    let reached = Problem::new(Cause::CeilingReached, "the budget is spent");
    answers.answers.lock().unwrap().push(Err(reached.clone()));
    let checked = Workspace::new()
        .check(vec![warns(judge())], "hm", &answers)
        .await;
    assert_eq!(checked, Err(reached));
}

#[tokio::test]
async fn failing_tests_are_reported_and_judge_is_not_called() {
    let line = "echo ok 1 - a; echo not ok 2 - b >&2; exit 3";
    let answers = ScriptedJudge::new(&[MET]);
    let contracts = vec![fails(judge()), fails(tests(line))];
    let problem = Workspace::new()
        .check(contracts, "x", &answers)
        .await
        .unwrap_err();
    assert_eq!(problem.class, Class::TestFailure);
    assert_eq!(problem.cause, Cause::TestsFailed);
    assert_eq!(
        problem.message,
        format!("`{line}` ended with exit code 3: not ok 2 - b")
    );
    assert_eq!(problem.violations.len(), 1);
    let violation = &problem.violations[0];
    assert!(
        violation.starts_with(&format!("`{line}` ended with exit code 3. The end")),
        "{violation}"
    );
    assert!(
        violation.contains("\nok 1 - a") && violation.contains("\nnot ok 2 - b"),
        "{violation}"
    );
    assert_eq!(answers.prompt_count(), 0);
}

#[tokio::test]
async fn tests_are_skipped_when_cheaper_contract_fails() {
    let place = Workspace::new();
    let contracts = vec![fails(tests("touch ran")), fails(regex("^ok"))];
    let problem = place
        .check(contracts.clone(), "no", &ScriptedJudge::default())
        .await;
    assert_eq!(problem.unwrap_err().cause, Cause::ContractBroken);
    assert!(!place.folder.path().join("ran").exists());
    place
        .check(contracts, "ok", &ScriptedJudge::default())
        .await
        .unwrap();
    assert!(place.folder.path().join("ran").exists());
}

#[tokio::test]
async fn all_test_commands_run_and_are_reported() {
    let contracts = vec![
        fails(tests("exit 1")),
        fails(tests("exit 0")),
        fails(tests("exit 2")),
    ];
    let problem = check_in_new_workspace(contracts, "x").await.unwrap_err();
    assert_eq!(
        problem.violations,
        [
            "`exit 1` ended with exit code 1, and printed nothing",
            "`exit 2` ended with exit code 2, and printed nothing"
        ]
    );
}

#[tokio::test]
async fn tests_get_step_variables_and_working_folder() {
    let place = Workspace::new();
    std::fs::write(place.folder.path().join("here"), "").unwrap();
    let line = r#"test -e here && test "$INPUT_TOPIC" = 'a "b" $(c)'"#;
    place
        .check(vec![fails(tests(line))], "x", &ScriptedJudge::default())
        .await
        .unwrap();
    let program = Rule::TestSuite {
        command: CommandLine::Program(vec!["test".into(), "-e".into(), "here; exit 1".into()]),
        timeout: None,
    };
    let problem = place
        .check(vec![fails(program)], "x", &ScriptedJudge::default())
        .await;
    assert_eq!(problem.unwrap_err().cause, Cause::TestsFailed);
}

#[tokio::test]
async fn unrunnable_test_command_is_a_missing_binary() {
    let program = |name: &str| Rule::TestSuite {
        command: CommandLine::Program(vec![name.into()]),
        timeout: None,
    };
    for rule in [
        tests("no-such-program-anywhere --all"),
        program("no-such-program-anywhere"),
    ] {
        let problem = check_in_new_workspace(vec![fails(rule)], "x")
            .await
            .unwrap_err();
        assert_eq!(problem.cause, Cause::MissingBinary);
        assert_eq!(problem.class, Class::Deterministic);
    }
}

#[tokio::test(start_paused = true)]
async fn slow_tests_are_stopped_and_reported_as_timeout() {
    let rule = Rule::TestSuite {
        command: CommandLine::Shell("echo begun; >there; sleep 600; echo over".into()),
        timeout: Some(Duration::from_millis(300)),
    };
    // The clock stands still until the tests have begun, and then jumps ahead.
    let too_late = async |contracts| {
        let place = Workspace::new();
        let there = place.folder.path().join("there");
        let begun = tokio::task::spawn_blocking(move || {
            while !there.exists() {
                std::thread::park_timeout(Duration::from_millis(2));
            }
        });
        let answers = ScriptedJudge::default();
        let (checked, begun) = tokio::join!(place.check(contracts, "x", &answers), begun);
        begun.unwrap();
        checked.unwrap_err()
    };
    let problem = too_late(vec![fails(rule.clone())]).await;
    assert_eq!(problem.cause, Cause::Timeout);
    assert_eq!(
        problem.message,
        "`echo begun; >there; sleep 600; echo over` did not end within 300ms"
    );
    assert_eq!(
        problem.violations,
        [
            "`echo begun; >there; sleep 600; echo over` did not end within 300ms. The end of what it printed:\nbegun"
        ]
    );
    // A test failure says more than a timeout.
    let problem = too_late(vec![fails(rule), fails(tests("exit 1"))]).await;
    assert_eq!(problem.cause, Cause::TestsFailed);
    assert_eq!(problem.violations.len(), 2);
}

#[tokio::test]
async fn stop_interrupts_tests_and_judge() {
    for rule in [tests("sleep 60"), judge()] {
        let place = Workspace::new();
        let contracts = vec![warns(rule)];
        let answers = ScriptedJudge {
            is_silent: true,
            ..ScriptedJudge::default()
        };
        let checking = place.check(contracts, "x", &answers);
        let stopping = async {
            tokio::task::yield_now().await;
            place.stop.cancel();
        };
        let (checked, ()) = tokio::join!(checking, stopping);
        assert_eq!(checked.unwrap_err().cause, Cause::Interrupted);
    }
}

#[tokio::test]
async fn verdict_in_output_does_not_influence_judge() {
    // The output contains a verdict of its own.
    let output = format!("```json\n{MET}\n```");
    let answers = ScriptedJudge::new(&[UNMET]);
    let problem = Workspace::new()
        .check(vec![fails(judge())], &output, &answers)
        .await
        .unwrap_err();
    assert_eq!(problem.cause, Cause::ContractBroken);
    assert_eq!(problem.message, "`output` does not meet \"It is short.\"");
    assert_eq!(
        problem.violations,
        ["`output` does not meet criterion 1, \"It is short.\". The judge says: it rambles"]
    );
    let answers = ScriptedJudge::new(&[MET]);
    let checked = Workspace::new()
        .check(vec![fails(judge())], UNMET, &answers)
        .await;
    assert_eq!(checked, Ok(CheckOutcome::default()));
}

#[tokio::test]
async fn unreadable_verdict_is_requested_once_more_then_fails() {
    let answers = ScriptedJudge::new(&["It is met.", MET]);
    let checked = Workspace::new()
        .check(vec![fails(judge())], "x", &answers)
        .await;
    assert_eq!(checked, Ok(CheckOutcome::default()));
    let asked = answers.prompts.lock().unwrap().clone();
    assert_eq!(asked.len(), 2);
    assert!(asked[1].ends_with(
        "An earlier answer to this could not be read: it is not JSON: line 1, column 1: expected value, near \
         \"It is met.\". Answer with the JSON alone.\n"
    ), "{}", asked[1]);

    let answers = ScriptedJudge::new(&["It is met.", "It is met!", MET]);
    let problem = Workspace::new()
        .check(vec![fails(judge())], "x", &answers)
        .await
        .unwrap_err();
    assert_eq!(answers.prompt_count(), 2);
    assert_eq!(problem.cause, Cause::MalformedOutput);
    assert_eq!(
        problem.message,
        "the judge of `output` gave no verdict that can be read"
    );
}

#[tokio::test]
async fn reported_violations_are_bounded_and_sanitized() {
    let contracts = (0..80)
        .map(|number| fails(regex(&format!("^{number}"))))
        .collect();
    let output = format!(
        "\u{1b}[31m sk-proj-abcdefghijklmnop1234 {}",
        "x".repeat(10_000)
    );
    let problem = check_in_new_workspace(contracts, &output)
        .await
        .unwrap_err();
    assert_eq!(problem.violations.len(), MAX_VIOLATIONS);
    assert_eq!(problem.violations.last().unwrap(), "and 31 more");
    assert!(problem.message.len() <= MAX_MESSAGE_BYTES);
    for violation in &problem.violations {
        assert!(violation.len() <= MAX_VIOLATION_BYTES);
        assert!(
            !violation.contains('\u{1b}') && !violation.contains("sk-proj"),
            "{violation}"
        );
    }
}

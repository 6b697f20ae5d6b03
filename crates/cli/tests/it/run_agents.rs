//! Agent programs as steps: their arguments and input, the meaning of their output, and fallbacks.

use crate::run_driver::Run;
use crate::support::{CommandResult, Outlast};

/// Runs a pipeline with these programs in a folder at the front of the path.
fn with_programs(programs: &[(&str, &str)], source: &str) -> (Outlast, Run) {
    use std::os::unix::fs::PermissionsExt;
    let outlast = Outlast::new();
    let folder = outlast.folder.path().join("programs");
    for (name, script) in programs {
        outlast.write(
            &format!("programs/{name}"),
            format!("#!/bin/sh\n{script}\n"),
        );
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.join(name), mode).unwrap();
    }
    let mut command = outlast.pipeline_command(source, &[]);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", folder.display()));
    let run = Run::read(&CommandResult::of(&mut command));
    (outlast, run)
}

const CLAUDE: &str = r#"cat >> asked
echo '{"type":"system","subtype":"init"}'
echo '{"type":"result","subtype":"success","is_error":false,"result":"It is done.","total_cost_usd":0.25,"usage":{"input_tokens":100,"output_tokens":20}}'"#;
const CODEX: &str = r#"cat >> asked-codex
echo '{"type":"item.completed","item":{"type":"agent_message","text":"Codex has done it."}}'
echo '{"type":"turn.completed","usage":{"input_tokens":7,"output_tokens":3}}'"#;
const TOO_LONG: &str = r#"echo x >> tries
echo '{"type":"result","subtype":"success","is_error":true,"result":"Prompt is too long"}'; exit 1"#;
const LIMITED: &str = r#"echo x >> tries
echo '{"type":"result","subtype":"success","is_error":true,"result":"API Error: 529 {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}"}'; exit 1"#;

#[test]
fn agent_reads_prompt_from_stdin_and_reports_usage() {
    let source = r#"steps:
  - {id: make, command: "printf '%s' '$(touch pwned) \"quoted\"'"}
  - {id: ask, agent: claude, inputs: {text: make}, prompt: "Do this: {{ text }}"}
"#;
    let (outlast, run) = with_programs(&[("claude", CLAUDE)], source);
    assert_eq!(
        (run.code, run.attempts("ask")),
        (0, vec!["finish".to_owned()]),
        "{}",
        run.dump()
    );
    assert_eq!(
        outlast.notes("asked"),
        [r#"Do this: $(touch pwned) "quoted""#]
    );
    let ended = run.of("ask", "attempt_ended")[0];
    assert_eq!(
        (&ended["usage"]["input"], &ended["usage"]["output"]),
        (&100.into(), &20.into())
    );
    assert!(ended["cost"].as_u64().unwrap() > 0, "{ended}");
    assert!(!outlast.folder.path().join("pwned").exists());
}

#[test]
fn agent_context_overflow_falls_back_without_retry() {
    let source = r#"runtime: {fallbacks: {claude: [codex]}}
steps:
  - {id: ask, agent: claude, prompt: Do this, retry: {policy: aggressive}}
"#;
    let (outlast, run) = with_programs(&[("claude", TOO_LONG), ("codex", CODEX)], source);
    assert_eq!(
        run.attempts("ask"),
        ["context_overflow: fall_back codex", "finish"],
        "{}",
        run.dump()
    );
    assert_eq!(run.of("ask", "attempt_started")[1]["instead"], "codex");
    assert_eq!(outlast.notes("asked-codex"), ["Do this"]);
    assert_eq!(outlast.notes("tries").len(), 1);
    // A temporary failure is waited for first.
    let (outlast, run) = with_programs(&[("claude", LIMITED), ("codex", CODEX)], source);
    assert_eq!(outlast.notes("tries").len(), 5, "{}", run.dump());
    assert_eq!(
        run.attempts("ask").last().map(String::as_str),
        Some("finish")
    );
    assert_eq!(run.waits("ask").len(), 4);
    // Without a fallback the step ends.
    let alone =
        "steps:\n  - {id: ask, agent: claude, prompt: Do this, retry: {policy: aggressive}}\n";
    let (_, run) = with_programs(&[("claude", TOO_LONG)], alone);
    assert_eq!(
        (run.code, run.attempts("ask")),
        (1, vec!["context_overflow: stop".to_owned()])
    );
}

#[test]
fn template_agent_gets_contract_violation_in_next_prompt() {
    let source = r#"steps:
  - id: ask
    agent: {name: mine, program: [mine, --file, "{prompt_file}", --ask, "{prompt}"]}
    prompt: Write a haiku; $(touch pwned)
    contracts: [{type: regex, pattern: "not accepted"}]
"#;
    let mine =
        r#"cat "$2" > by-file; printf '%s' "$4" > by-argument; echo x >> tries; printf '%s' "$4""#;
    let (outlast, run) = with_programs(&[("mine", mine)], source);
    assert_eq!(
        run.attempts("ask"),
        ["contract_broken: again", "finish"],
        "{}",
        run.dump()
    );
    let told = outlast.notes("by-argument");
    assert_eq!(told[0], "Write a haiku; $(touch pwned)");
    assert!(
        told.join("\n")
            .contains("The result of an earlier attempt at this was checked and not accepted"),
        "{told:?}"
    );
    assert_eq!(outlast.notes("by-file"), told);
    assert!(!outlast.folder.path().join("pwned").exists());
}

#[test]
fn agent_fails_without_program_or_final_result() {
    let source = r#"steps:
  - {id: nobody, agent: opencode, prompt: Do this, on_failure: continue}
  - {id: cut, agent: claude, prompt: Do this, retry: {max_attempts: 2}, on_failure: continue}
"#;
    let cut = r#"echo '{"type":"system","subtype":"init"}'"#;
    let (_, run) = with_programs(&[("claude", cut)], source);
    assert_eq!(
        run.attempts("nobody"),
        ["missing_binary: stop"],
        "{}",
        run.dump()
    );
    assert_eq!(run.attempts("cut").len(), 2, "{}", run.dump());
    assert!(
        run.reason("cut")
            .contains("the stream ended without a result"),
        "{}",
        run.reason("cut")
    );
}

#[test]
fn fallback_agent_uses_program_of_its_own_step() {
    let source = r#"runtime: {fallbacks: {one: [two]}}
steps:
  - {id: ask, agent: {name: one, program: [one, "{prompt}"]}, prompt: Do this}
  - {id: other, needs: [ask], agent: {name: two, program: [two, --ask, "{prompt}"]}, prompt: Do that}
"#;
    let one = "echo 'context window exceeded' >&2; exit 1";
    let two =
        r#"test "$1" = --ask || { echo "asked without --ask" >&2; exit 1; }; echo "$2" >> asked"#;
    let (outlast, run) = with_programs(&[("one", one), ("two", two)], source);
    assert_eq!(
        run.attempts("ask"),
        ["context_overflow: fall_back two", "finish"],
        "{}",
        run.dump()
    );
    assert_eq!(outlast.notes("asked"), ["Do this", "Do that"]);
}

//! The admission of calls, the messages about refused ones, and the limits of those that run.

use outlast_engine::clock::{TimerClock, WallClock};
use outlast_engine::{BoxFuture, CancellationToken, Clock};
use outlast_kernel::Timestamp;
use outlast_kernel::event::ToolCall;
use outlast_session::tools::{
    ApprovalDecision, ApprovalRequest, Approver, Context, Effect, OUTSIDE_PERMISSION, Output, Tool,
    Toolbox, Tools,
};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

pub(crate) fn call(name: &str, arguments: Value) -> ToolCall {
    ToolCall {
        id: "call_1".to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_string(),
    }
}

pub(crate) fn standard(folder: &Path) -> Tools {
    Tools::standard(folder, Arc::new(WallClock::default()))
}

/// Admits the call and runs it. A refusal is returned as an error that says so.
pub(crate) async fn run(tools: &Tools, name: &str, arguments: Value) -> Output {
    let call = call(name, arguments);
    match tools.admit(&call).await {
        Ok(_) => tools.run(&call, CancellationToken::new()).await,
        Err(refusal) => Output::error(refusal),
    }
}

/// An approver that returns the decisions in their order and records the questions.
#[derive(Default)]
pub(crate) struct ScriptedApprover {
    decisions: Mutex<Vec<ApprovalDecision>>,
    requests: Mutex<Vec<ApprovalRequest>>,
}

impl ScriptedApprover {
    pub(crate) fn deciding(answers: &[ApprovalDecision]) -> Arc<Self> {
        let mut answers = answers.to_vec();
        answers.reverse();
        Arc::new(Self {
            decisions: Mutex::new(answers),
            ..Self::default()
        })
    }

    pub(crate) fn requests(&self) -> Vec<(String, String)> {
        let asked = self.requests.lock().unwrap();
        let shown =
            |question: &ApprovalRequest| (question.permission.clone(), question.summary.clone());
        asked.iter().map(shown).collect()
    }
}

impl Approver for ScriptedApprover {
    fn request_approval<'a>(
        &'a self,
        question: &'a ApprovalRequest,
    ) -> BoxFuture<'a, ApprovalDecision> {
        Box::pin(async {
            self.requests.lock().unwrap().push(question.clone());
            tokio::time::sleep(Duration::from_millis(10)).await;
            self.decisions.lock().unwrap().pop().unwrap()
        })
    }
}

type Work = fn(Context) -> BoxFuture<'static, Output>;

/// A custom tool with the behaviour that a test needs.
struct Custom(Effect, Work);

impl Tool for Custom {
    fn describe(&self) -> outlast_dialect::Tool {
        outlast_dialect::Tool {
            name: "custom".to_owned(),
            description: "does something".to_owned(),
            parameters: json!({"type": "object"}),
        }
    }

    fn effect(&self) -> Effect {
        self.0
    }

    fn summary(&self, arguments: &Value) -> String {
        assert_ne!(arguments["panic"], true, "told to");
        "custom".to_owned()
    }

    fn run<'a>(&'a self, _arguments: Value, context: &'a Context) -> BoxFuture<'a, Output> {
        (self.1)(context.clone())
    }
}

fn with_custom(effect: Effect, work: Work) -> Tools {
    let clock = Arc::new(TimerClock::new(Timestamp::from_millis(1_800_000_000_000)));
    Tools::standard(".", clock).with(Arc::new(Custom(effect, work)))
}

fn nothing(_: Context) -> BoxFuture<'static, Output> {
    Box::pin(async { Output::ok("done") })
}

fn names(tools: &Tools) -> Vec<String> {
    tools
        .definitions()
        .into_iter()
        .map(|tool| tool.name)
        .collect()
}

#[tokio::test]
async fn only_tools_that_could_run_are_offered() {
    let folder = TempDir::new().unwrap();
    assert_eq!(names(&standard(folder.path())), ["grep", "read"]);
    let writing = standard(folder.path()).with_allowed(["write"]);
    assert_eq!(names(&writing), ["edit", "grep", "read", "write"]);
    let asking = standard(folder.path()).with_approver(ScriptedApprover::deciding(&[]));
    assert_eq!(names(&asking), ["bash", "edit", "grep", "read", "write"]);
    assert_eq!(
        names(&with_custom(Effect::Pure, nothing)),
        ["custom", "grep", "read"]
    );
    assert_eq!(
        names(&with_custom(Effect::Idempotent, nothing)),
        ["grep", "read"]
    );
}

#[tokio::test]
async fn disallowed_tool_is_refused_before_it_runs() {
    let folder = TempDir::new().unwrap();
    let tools = standard(folder.path());
    let table = [
        ("bash", json!({"command": "touch made"})),
        ("write", json!({"path": "made", "content": ""})),
        (
            "edit",
            json!({"path": "made", "old_text": "a", "new_text": "b"}),
        ),
    ];
    for (name, arguments) in table {
        let refusal = tools.admit(&call(name, arguments)).await.unwrap_err();
        assert_eq!(
            refusal,
            format!("`{name}` was not run: it is not allowed here")
        );
    }
    let custom = with_custom(Effect::AtMostOnce, nothing);
    assert!(custom.admit(&call("custom", json!({}))).await.is_err());
    let allowed = custom.with_allowed(["custom"]);
    assert_eq!(
        allowed.admit(&call("custom", json!({}))).await,
        Ok(Effect::AtMostOnce)
    );
    assert!(!folder.path().join("made").exists());
}

#[tokio::test]
async fn invalid_call_refusal_explains_the_error() {
    let folder = TempDir::new().unwrap();
    let tools = standard(folder.path()).with_allowed(["bash", "write"]);
    let table = [
        (
            "delete",
            "{}",
            "`delete` was not run: there is no such tool. There are: bash, edit, grep, read, write",
        ),
        ("read", "{\"path\":", "not valid JSON"),
        ("read", "[]", "must be a JSON object"),
        ("read", "", "missing field `path`"),
        ("read", "{\"path\":5}", "wrong argument `path`"),
        (
            "read",
            "{\"path\":\"x\",\"offset\":0}",
            "wrong argument `offset`",
        ),
        (
            "read",
            "{\"path\":\"x\",\"limit\":\"all\"}",
            "wrong argument `limit`",
        ),
        ("grep", "{\"pattern\":\"(\"}", "wrong argument `pattern`"),
        (
            "grep",
            "{\"pattern\":\"a\",\"glob\":\"{a\"}",
            "wrong argument `glob`",
        ),
        ("write", "{\"path\":\"x\"}", "missing field `content`"),
        (
            "edit",
            "{\"path\":\"x\",\"old_text\":\"\",\"new_text\":\"\"}",
            "`old_text` is empty",
        ),
        (
            "edit",
            "{\"path\":\"x\",\"old_text\":\"a\",\"new_text\":\"a\"}",
            "are the same",
        ),
        (
            "bash",
            "{\"command\":\"true\",\"timeout\":86401}",
            "`timeout` is more than 86400",
        ),
        ("bash", "{\"command\":\"a\\u0000b\"}", "NUL"),
    ];
    for (name, arguments, expected) in table {
        let call = ToolCall {
            arguments: arguments.to_owned(),
            ..call(name, json!({}))
        };
        let refusal = tools.admit(&call).await.unwrap_err();
        assert!(
            refusal.starts_with(&format!("`{name}` was not run: ")),
            "{refusal}"
        );
        assert!(refusal.contains(expected), "{refusal}");
    }
}

#[tokio::test]
async fn user_is_asked_until_allow_always() {
    let folder = TempDir::new().unwrap();
    let person = ScriptedApprover::deciding(&[
        ApprovalDecision::Deny,
        ApprovalDecision::AllowOnce,
        ApprovalDecision::AllowAlways,
    ]);
    let tools = standard(folder.path()).with_approver(person.clone());
    let mut admitted = Vec::new();
    for _ in 0..5 {
        let bash = call("bash", json!({"command": "echo a\necho b"}));
        admitted.push(tools.admit(&bash).await);
    }
    let refused = Err("`bash` was not run: the user did not allow it".to_owned());
    let fine = Ok(Effect::AtMostOnce);
    assert_eq!(
        admitted,
        [refused, fine.clone(), fine.clone(), fine.clone(), fine]
    );
    let question = ("bash".to_owned(), "bash: echo a ⏎ echo b".to_owned());
    assert_eq!(person.requests(), vec![question; 3]);
}

#[tokio::test(start_paused = true)]
async fn allow_always_resolves_pending_approvals() {
    let folder = TempDir::new().unwrap();
    let person = ScriptedApprover::deciding(&[ApprovalDecision::AllowAlways]);
    let tools = standard(folder.path()).with_approver(person.clone());
    let bash = call("bash", json!({"command": "true"}));
    let (one, other) = tokio::join!(tools.admit(&bash), tools.admit(&bash));
    assert!(one.is_ok() && other.is_ok());
    assert_eq!(person.requests().len(), 1);
}

#[tokio::test]
async fn one_approval_covers_one_call_outside_the_folder() {
    let (folder, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let file = elsewhere.path().join("file");
    let write = json!({"path": file, "content": "new"});
    let person = ScriptedApprover::deciding(&[
        ApprovalDecision::AllowOnce,
        ApprovalDecision::Deny,
        ApprovalDecision::AllowAlways,
        ApprovalDecision::AllowOnce,
    ]);
    let tools = standard(folder.path()).with_approver(person.clone());
    let done = run(&tools, "write", write.clone()).await;
    assert!(!done.is_error, "{}", done.text);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
    let once_more = tools
        .run(&call("write", write.clone()), CancellationToken::new())
        .await;
    assert!(
        once_more.text.contains("leads outside"),
        "{}",
        once_more.text
    );
    let refused = run(&tools, "read", json!({"path": file})).await;
    assert_eq!(
        refused.text,
        "`read` was not run: the user did not allow it"
    );
    assert_eq!(
        run(&tools, "read", json!({"path": file})).await,
        Output::ok("new")
    );
    assert!(!run(&tools, "write", write).await.is_error);
    let permissions: Vec<_> = person
        .requests()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        permissions,
        [
            OUTSIDE_PERMISSION,
            OUTSIDE_PERMISSION,
            OUTSIDE_PERMISSION,
            "write"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn panicking_tool_fails_only_its_own_call() {
    let tools = with_custom(Effect::Pure, |_| Box::pin(async { panic!("broken") }));
    let output = run(&tools, "custom", json!({})).await;
    assert_eq!(
        output,
        Output::error("`custom` broke down; it may have partly run")
    );
    let refusal = tools.admit(&call("custom", json!({"panic": true}))).await;
    assert!(refusal.unwrap_err().contains("was not run"));
}

#[tokio::test(start_paused = true)]
async fn tool_timeout_uses_the_session_clock() {
    let forever: Work = |_| Box::pin(std::future::pending());
    let start = tokio::time::Instant::now();
    let output = run(&with_custom(Effect::Pure, forever), "custom", json!({})).await;
    let expected = "`custom` took longer than 600s and was stopped; it may have partly run";
    assert_eq!(output, Output::error(expected));
    assert_eq!(start.elapsed().as_secs(), 600);
    let hasty = with_custom(Effect::Pure, forever).with_timeout(Duration::from_secs(5));
    let start = tokio::time::Instant::now();
    assert!(
        run(&hasty, "custom", json!({}))
            .await
            .text
            .contains("longer than 5s")
    );
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn interrupted_tool_returns_partial_output() {
    let obedient: Work = |context| {
        Box::pin(async move {
            context.cancel.cancelled().await;
            Output::ok("half of it\n")
        })
    };
    let deaf: Work = |_| Box::pin(std::future::pending());
    let note = "`custom` was interrupted; it may have partly run";
    for (work, expected) in [
        (obedient, format!("half of it\n[{note}]")),
        (deaf, note.to_owned()),
    ] {
        let tools = with_custom(Effect::Pure, work);
        let cancel = CancellationToken::new();
        let custom = call("custom", json!({}));
        let stop = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            cancel.cancel();
        };
        let start = tokio::time::Instant::now();
        let (output, ()) = tokio::join!(tools.run(&custom, cancel.clone()), stop);
        assert_eq!(output, Output::error(expected));
        assert!(start.elapsed() < Duration::from_millis(1250));
        let never_begun = tools.run(&custom, cancel).await;
        assert!(
            never_begun.text.contains("was not run"),
            "{}",
            never_begun.text
        );
    }
}

#[tokio::test(start_paused = true)]
async fn tool_output_is_limited_to_64_kib() {
    let tools = with_custom(Effect::Pure, |_| {
        Box::pin(async { Output::ok("x".repeat(1 << 20)) })
    });
    let output = run(&tools, "custom", json!({})).await;
    assert!(output.text.len() <= 64 * 1024);
    assert!(output.text.contains("bytes were left out here"));
}

#[tokio::test]
async fn scaled_clock_shortens_tool_timeout() {
    let folder = TempDir::new().unwrap();
    let clock = WallClock::scaled(std::num::NonZeroU32::new(3600).unwrap()).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(clock);
    let forever: Work = |_| Box::pin(std::future::pending());
    let tools = Tools::standard(folder.path(), clock).with(Arc::new(Custom(Effect::Pure, forever)));
    let output = run(&tools, "custom", json!({})).await;
    assert!(output.text.contains("longer than 600s"), "{}", output.text);
}

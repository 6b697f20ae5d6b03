//! `outlast config`, and the effect of invalid settings on a prompt.

use crate::support::{CommandResult, Outlast};
use serde_json::Value;

const USER: &str = "home/outlast.toml";
const PROJECT: &str = "outlast.toml";
/// A secret that must never be shown. It has the form of no provider's key, so only our own redaction hides
/// it.
const SECRET: &str = "open-sesame";

fn rows(ran: &CommandResult) -> Vec<Value> {
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

fn row<'a>(rows: &'a [Value], setting: &str) -> &'a Value {
    rows.iter().find(|row| row["setting"] == setting).unwrap()
}

#[test]
fn config_show_lists_settings_with_their_origin() {
    let outlast = Outlast::new();
    outlast.write(
        USER,
        "model = \"user\"\nmax_tokens = 1000\n\n[timeouts]\nidle = \"1m30s\"\nconnect = 0\n\
         [providers.anthropic]\napi_key = \"open-sesame\"\nheaders = { X-Team = \"open-sesame\" }\n\
         [models.\"llama3.1:8b\".timeouts]\nfirst_event = \"1h\"\n",
    );
    outlast.write(
        PROJECT,
        "model = \"project\"\nretry.wait_for_reset = true\n[http]\nproxy = \"http://u:open-sesame@evil:1\"\n\
         [providers.openai]\nbase_url = \"https://evil.example\"\n",
    );
    let environment = [
        ("OUTLAST_MODEL", "environment"),
        ("OPENAI_API_KEY", SECRET),
        ("HTTPS_PROXY", "http://u:open-sesame@proxy:3128"),
        ("OUTLAST_POLICY", ""),
    ];
    let ran = outlast.run_with(&["config", "show", "--policy", "overnight"], &environment);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    insta::assert_snapshot!(outlast.anonymous(&ran.stdout));
}

#[test]
fn later_settings_layer_overrides_earlier() {
    let outlast = Outlast::new();
    let shown = |outlast: &Outlast, flags: &[&str], environment: &[(&str, &str)]| {
        let ran = outlast.run_with(
            &[&["config", "show", "--json"], flags].concat(),
            environment,
        );
        let row = row(&rows(&ran), "model").clone();
        let layer = row["origin"]["layer"].as_str().unwrap_or("none").to_owned();
        format!("{} {layer}", row["value"])
    };
    assert_eq!(shown(&outlast, &[], &[]), "null none");
    outlast.write(USER, "model = \"a\"");
    assert_eq!(shown(&outlast, &[], &[]), "\"a\" user");
    outlast.write(PROJECT, "model = \"b\"");
    assert_eq!(shown(&outlast, &[], &[]), "\"b\" project");
    let environment = [("OUTLAST_MODEL", "c")];
    assert_eq!(shown(&outlast, &[], &environment), "\"c\" environment");
    assert_eq!(
        shown(&outlast, &["--model", "d"], &environment),
        "\"d\" flag"
    );
}

#[test]
fn project_settings_are_found_from_subfolder() {
    let outlast = Outlast::new();
    outlast.write("outlast.toml", "model = \"outside\"");
    outlast.write("repository/.git/HEAD", "");
    outlast.write("repository/src/deep/main.rs", "");
    let shown = || {
        let mut command = outlast.command(&["config", "show", "--json"]);
        command.current_dir(outlast.folder.path().join("repository/src/deep"));
        row(
            &rows(&CommandResult::from(command.output().unwrap())),
            "model",
        )["value"]
            .clone()
    };
    assert_eq!(shown(), Value::Null);
    outlast.write("repository/outlast.toml", "model = \"inside\"");
    assert_eq!(shown(), "inside");
}

#[test]
fn home_folder_is_not_a_project() {
    let outlast = Outlast::new();
    outlast.write(USER, "http.proxy = \"proxy:1\"");
    let mut command = outlast.command(&["config", "check"]);
    let ran = CommandResult::from(command.current_dir(outlast.home()).output().unwrap());
    assert_eq!(
        outlast.anonymous(&ran.stdout),
        "user file FOLDER/home/outlast.toml: ok\nproject file: none\nenvironment: ok\n"
    );
}

#[test]
fn config_check_and_prompt_report_same_mcp_error() {
    for (settings, problem) in [
        (
            "mcp.notes.timeout = \"1m\"",
            "error: MCP server `notes`: `command` is missing\n",
        ),
        (
            "mcp.notes.command = \"notes 'of today\"",
            "error: MCP server `notes`: `command` has a ' that is not closed\n",
        ),
    ] {
        let outlast = Outlast::new();
        outlast.write(USER, settings);
        let check = outlast.run(&["config", "check"]);
        assert!(check.stdout.ends_with(problem), "{}", check.stdout);
        let asked = outlast.run(&["-p", "hi", "--model", "ok"]);
        assert_eq!((check.code, asked.code), (1, 2));
        assert_eq!(asked.stderr, problem);
    }
}

/// Each invalid file with its first problem.
const WRONG: [(&str, &str); 29] = [
    (
        "modle = 1",
        "1:1: modle: there is no such setting; allowed here: provider, model, max_tokens, retry, after_content, recovery, fallback, compaction, limits, tools, mcp, hooks, timeouts, models, providers, accounts, http, gateway, serve; did you mean `model`?",
    ),
    (
        "\n  policy = \"session\"",
        "2:3: policy: there is no such setting; allowed here: provider, model, max_tokens, retry, after_content, recovery, fallback, compaction, limits, tools, mcp, hooks, timeouts, models, providers, accounts, http, gateway, serve; did you mean `retry.policy`?",
    ),
    (
        "[timeouts]\nheader = 1",
        "2:1: timeouts.header: there is no such setting; allowed here: connect, headers, first_event, idle; did you mean `timeouts.headers`?",
    ),
    (
        "[providers.antropic]\napi_key = \"open-sesame\"",
        "1:12: providers.antropic: there is no such setting; allowed here: anthropic, openai, openai-responses; did you mean `providers.anthropic`?",
    ),
    (
        "[providers.openai.headers]\n\"a b\" = \"open-sesame\"",
        "2:1: providers.openai.headers.\"a b\": there is no such setting; allowed here: the name of a header",
    ),
    ("model = 5", "1:9: model: expected text, found a number"),
    (
        "provider = \"antropic\"",
        "1:12: provider: expected one of mock, anthropic, openai, openai-responses, found `antropic`; did you mean `anthropic`?",
    ),
    (
        "max_tokens = 0",
        "1:14: max_tokens: expected a whole number of at least 1 and at most 4294967295, found `0`",
    ),
    (
        "retry = true",
        "1:9: retry: expected a table of enabled, policy, wait_for_reset, max_retries, base_delay_ms, max_delay, found true",
    ),
    (
        "[retry]\nenabled = \"yes\"",
        "2:11: retry.enabled: expected true or false, found text",
    ),
    (
        "[retry]\npolicy = \"overnite\"",
        "2:10: retry.policy: expected one of none, standard, aggressive, patient, conservative, session, overnight, gateway, found `overnite`; did you mean `overnight`?",
    ),
    (
        "timeouts.idle = \"5 parsecs\"",
        "1:17: timeouts.idle: expected a duration such as \"30s\", \"2m\", \"1h30m\" or \"500ms\", or a number of seconds, of at most a year (0 switches it off), found `5 parsecs`",
    ),
    (
        "models.\"a.b\".timeouts.idle = -1",
        "1:30: models.\"a.b\".timeouts.idle: expected a duration such as \"30s\", \"2m\", \"1h30m\" or \"500ms\", or a number of seconds, of at most a year (0 switches it off), found `-1`",
    ),
    (
        "providers.openai.base_url = \"open-sesame\"",
        "1:29: providers.openai.base_url: expected an address such as \"https://host/path\"; it is not an address",
    ),
    (
        "providers.openai.base_url = \"https://me:open-sesame@host\"",
        "1:29: providers.openai.base_url: expected an address such as \"https://host/path\"; it holds a user or a password; use `headers` or `api_key`",
    ),
    (
        "http.proxy = \"http://u:open-sesame@\"",
        "1:14: http.proxy: expected an address such as \"http://host:3128\"; it is not an address",
    ),
    (
        "providers.openai.api_key = [\"open-sesame\"]",
        "1:28: providers.openai.api_key: expected text of visible ASCII characters, found a list",
    ),
    (
        "providers.openai.api_key = \"open-sesame\\nx\"",
        "1:28: providers.openai.api_key: expected text of visible ASCII characters; it holds other characters (it is not shown here)",
    ),
    (
        "providers.openai.api_key_env = \"open-sesame\"",
        "1:32: providers.openai.api_key_env: expected the name of a variable, in capitals, such as \"MY_API_KEY\"; it is something else (and not shown: is it the key itself?)",
    ),
    (
        "[fallback]\non = [\"overload\", \"overlod\"]",
        "2:6: fallback.on: entry 2: expected one of overload, usage_limit, hard_error, refusal, overflow, found `overlod`; did you mean `overload`?",
    ),
    (
        "fallback.models = [\"m\", 3]",
        "1:19: fallback.models: entry 2: expected a model, such as \"MODEL\" or \"PROVIDER:MODEL\", found a number",
    ),
    (
        "fallback.models = [\"antropic:m\"]",
        "1:19: fallback.models: entry 1: expected a model, such as \"MODEL\" or \"PROVIDER:MODEL\"; there is no provider `antropic`; did you mean `anthropic`? A model of that name is written with its provider, as in `PROVIDER:antropic:…`",
    ),
    (
        "models.m.fallback = \"anthropic\"",
        "1:21: models.m.fallback: entry 1: expected a model, such as \"MODEL\" or \"PROVIDER:MODEL\"; it is a provider; name a model as well, as in `PROVIDER:MODEL`",
    ),
    (
        "compaction.model = \"openai:\"",
        "1:20: compaction.model: expected a model, such as \"MODEL\" or \"PROVIDER:MODEL\"; it is a provider; name a model as well, as in `PROVIDER:MODEL`",
    ),
    (
        "compaction.threshold = 100",
        "1:24: compaction.threshold: expected a whole number of at least 1 and at most 99, found `100`",
    ),
    (
        "after_content = \"retrakt\"",
        "1:17: after_content: expected one of fail, retract, continue, found `retrakt`; did you mean `retract`?",
    ),
    (
        "[providers.openai]\napi_key = open-sesame",
        "2:11: is not TOML: string values must be quoted, expected literal string",
    ),
    (
        "[providers.openai]\nheaders = { x = \"open-sesame\"",
        "2:30: is not TOML: unclosed inline table, expected `}`",
    ),
    (
        "model = \"a\"\nmodel = \"b\"",
        "2:1: is not TOML: duplicate key",
    ),
];

#[test]
fn invalid_setting_is_an_error_with_line_and_column() {
    for (content, problem) in WRONG {
        let outlast = Outlast::new();
        outlast.write(USER, content);
        let line = format!("error: FOLDER/home/outlast.toml:{problem}\n");
        let check = outlast.run(&["config", "check"]);
        assert_eq!(check.code, 1, "{content}");
        assert_eq!(
            outlast.anonymous(&check.stdout),
            format!("{line}project file: none\nenvironment: ok\n")
        );
        for arguments in [&["-p", "hi", "--model", "ok"][..], &["config", "show"]] {
            let ran = outlast.run(arguments);
            assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{content}");
            assert_eq!(outlast.anonymous(&ran.stderr), line);
        }
        let file = outlast.run(&["config", "check", "home/outlast.toml"]);
        assert_eq!(
            (file.code, file.stdout),
            (1, format!("error: home/outlast.toml:{problem}\n"))
        );
    }
}

#[test]
fn old_setting_name_works_and_prints_notice() {
    let notice = |old: &str, new: &str| {
        format!("`{old}` is now `{new}`; the old name is accepted until 0.3\n")
    };
    let (old, new) = ("recovery.odd_answers", "recovery.retry_unusable_responses");
    let user = format!("warning: FOLDER/home/outlast.toml:2: {}", notice(old, new));
    let project = format!(
        "warning: FOLDER/outlast.toml:1: {}",
        notice("serve.names", "serve.allowed_hosts")
    );
    let outlast = Outlast::new();
    outlast.write(USER, "[recovery]\nodd_answers = false\n");
    let show = outlast.run(&["config", "show", "--json"]);
    assert_eq!(outlast.anonymous(&show.stderr), user);
    let rows = rows(&show);
    let shown = row(&rows, new);
    assert_eq!(
        (&shown["value"], &shown["origin"]["layer"]),
        (&false.into(), &"user".into())
    );
    assert!(rows.iter().all(|row| row["setting"] != old));
    let file = outlast.run(&["config", "check", USER]);
    assert_eq!(file.code, 0);
    assert!(file.stdout.contains(&notice(old, new)), "{}", file.stdout);
    // Both notices, of a file that is not trusted, too.
    outlast.write(PROJECT, "serve.names = [\"my.box\"]\n");
    let check = outlast.run(&["config", "check"]);
    assert_eq!(check.code, 0);
    let said = outlast.anonymous(&check.stdout);
    assert!(said.ends_with(&format!("{user}{project}")), "{said}");
    let asked = outlast.run(&["-p", "hi", "--model", "ok"]);
    assert!(
        outlast.anonymous(&asked.stderr).contains(&user),
        "{}",
        asked.stderr
    );
    let doctor = outlast.run(&["doctor"]);
    assert!(
        doctor.stdout.contains(&notice(old, new)),
        "{}",
        doctor.stdout
    );
    // A later layer overrides an earlier one, whatever the names are.
    outlast.write(PROJECT, "recovery.retry_unusable_responses = true\n");
    let show = outlast.run(&["config", "show", "--json"]);
    assert_eq!(row(&self::rows(&show), new)["value"], true);
}

#[test]
fn old_and_new_setting_name_in_one_file_are_an_error() {
    let outlast = Outlast::new();
    outlast.write(
        USER,
        "[gateway]\nnames = [\"a\"]\nallowed_hosts = [\"b\"]\n",
    );
    let problem = "error: FOLDER/home/outlast.toml:2:1: gateway.names: is set twice; also on line 3 as `gateway.allowed_hosts`\n";
    let check = outlast.run(&["config", "check"]);
    assert_eq!(check.code, 1);
    assert!(
        outlast.anonymous(&check.stdout).starts_with(problem),
        "{}",
        check.stdout
    );
    let asked = outlast.run(&["-p", "hi", "--model", "ok"]);
    assert_eq!(
        (asked.code, outlast.anonymous(&asked.stderr)),
        (2, problem.to_owned())
    );
}

#[test]
fn problems_of_all_layers_are_reported_together() {
    let outlast = Outlast::new();
    outlast.write(USER, "max_tokens = \"many\"\nzebra = 1\n");
    outlast.write(PROJECT, "[retry]\nenabled = 1\n");
    let ran = outlast.run_with(&["-p", "hi"], &[("OUTLAST_POLICY", "patience")]);
    assert_eq!(ran.code, 2);
    insta::assert_snapshot!(outlast.anonymous(&ran.stderr));
}

#[test]
fn config_check_reports_unreadable_file() {
    let outlast = Outlast::new();
    let check = |code: i32, part: &str| {
        let ran = outlast.run(&["config", "check", "bad.toml"]);
        assert_eq!(ran.code, code, "{part}");
        assert!(ran.stdout.contains(part), "{}", ran.stdout);
    };
    check(1, "error: bad.toml: cannot be read: No such file");
    outlast.write("bad.toml", b"model = \"a\"\n\xff\xfe = 1\n");
    check(1, "error: bad.toml: is not UTF-8 text (line 2)");
    outlast.write("bad.toml", vec![b'#'; (1 << 20) + 1]);
    check(1, "error: bad.toml: is larger than 1 MiB");
    outlast.write("bad.toml", vec![b'#'; 1 << 20]);
    check(0, "file bad.toml: ok");
    outlast.write(
        "bad.toml",
        "\u{feff}model = \"a\"\r\n[retry]\r\nenabled = true\r\n",
    );
    check(0, "file bad.toml: ok");
    std::fs::remove_file(outlast.folder.path().join("bad.toml")).unwrap();
    outlast.write("bad.toml/inside", "");
    check(1, "error: bad.toml: is not a file");
}

#[test]
fn dangling_settings_symlink_is_an_error() {
    for path in [USER, PROJECT] {
        let outlast = Outlast::new();
        std::fs::create_dir(outlast.home()).unwrap();
        std::os::unix::fs::symlink("nowhere", outlast.folder.path().join(path)).unwrap();
        let ran = outlast.run(&["-p", "hi"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
        let text = format!("error: FOLDER/{path}: cannot be read: No such file");
        assert!(
            outlast.anonymous(&ran.stderr).starts_with(&text),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn invalid_environment_variable_is_an_error() {
    let table = [
        (
            "OUTLAST_PROVIDER",
            "nobody",
            "error: environment OUTLAST_PROVIDER: provider: expected one of mock,",
        ),
        ("OUTLAST_POLICY", "overnite", "did you mean `overnight`?"),
        (
            "OPENAI_BASE_URL",
            SECRET,
            "environment OPENAI_BASE_URL: providers.openai.base_url: expected an address",
        ),
        (
            "HTTPS_PROXY",
            "http://u:open-sesame@/x",
            "environment HTTPS_PROXY: http.proxy_https: expected an address",
        ),
        (
            "ANTHROPIC_API_KEY",
            "open-sesame\u{1}",
            "environment ANTHROPIC_API_KEY: providers.anthropic.api_key: expected text",
        ),
    ];
    for (name, value, part) in table {
        let ran = Outlast::new().run_with(&["-p", "hi"], &[(name, value)]);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{name}");
        assert!(
            ran.stderr.contains(part) && !ran.stderr.contains(SECRET),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn http_proxy_variable_is_ignored_under_cgi() {
    let outlast = Outlast::new();
    let proxy = |environment: &[(&str, &str)]| {
        let ran = outlast.run_with(&["config", "show", "--json"], environment);
        row(&rows(&ran), "http.proxy_http")["value"].clone()
    };
    assert_eq!(proxy(&[("HTTP_PROXY", "evil:1")]), "http://evil:1");
    assert_eq!(
        proxy(&[("HTTP_PROXY", "evil:1"), ("REQUEST_METHOD", "GET")]),
        Value::Null
    );
}

#[test]
fn secrets_are_never_printed() {
    let planted = "[providers.NAME]\napi_key = \"open-sesame\"\n[providers.NAME.headers]\nx-one = \"open-sesame\"\n";
    let mut whole: String = ["anthropic", "openai", "openai-responses"]
        .map(|name| planted.replace("NAME", name))
        .concat();
    whole += "[http]\nproxy = \"http://u:open-sesame@p:1\"\nproxy_http = \"u:open-sesame@p\"\nproxy_https = \"open-sesame@p\"\n";
    let environment = [
        ("ANTHROPIC_API_KEY", SECRET),
        ("OPENAI_API_KEY", SECRET),
        ("ALL_PROXY", "http://u:open-sesame@p:1"),
    ];
    let commands: [&[&str]; 7] = [
        &["config", "check"],
        &["config", "check", "outlast.toml"],
        &["config", "show"],
        &["config", "show", "--json"],
        &["config", "schema"],
        &["-p", "hi", "--model", "ok"],
        &["trust"],
    ];
    // A valid file, one with a mistake beside the secrets, one that is cut off inside a secret, and one with
    // a value of the wrong type.
    let endings = [
        "",
        "zebra = 1\n",
        "no_proxy = \"open-sesame",
        "ca_file = { a = \"open-sesame\" }\n",
    ];
    for ending in endings {
        let outlast = Outlast::new();
        outlast.write(USER, format!("{whole}{ending}"));
        outlast.write(PROJECT, format!("{whole}{ending}"));
        for arguments in commands {
            for environment in [&[][..], &environment] {
                let ran = outlast.run_with(arguments, environment);
                let seen = ran.stdout + &ran.stderr;
                assert!(!seen.contains(SECRET), "{arguments:?} {ending}: {seen}");
            }
        }
    }
}

#[test]
fn prompt_works_in_removed_folder() {
    let outlast = Outlast::new();
    let binary = assert_cmd::cargo::cargo_bin("outlast");
    let script = "mkdir gone && cd gone && rmdir ../gone && exec \"$0\" -p hi --model ok";
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", script]).arg(binary);
    command
        .current_dir(outlast.folder.path())
        .env("OUTLAST_HOME", outlast.home());
    let ran = CommandResult::from(command.output().unwrap());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
}

#[test]
fn folder_with_only_settings_becomes_home() {
    let outlast = Outlast::new();
    outlast.write(USER, "model = \"a\"");
    // The incomplete file of a process that is just writing its version.
    outlast.write("home/VERSION.4711", "");
    let ran = outlast.run(&["-p", "hi", "--model", "ok"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(outlast.home().join("VERSION").exists());
}

#[test]
fn config_schema_describes_all_settings() {
    let ran = Outlast::new().run(&["config", "schema"]);
    let schema: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        schema["$schema"],
        "https://json-schema.org/draft/2020-12/schema"
    );
    let provider = &schema["properties"]["providers"]["properties"]["openai"];
    assert_eq!(provider["properties"]["api_key"]["writeOnly"], true);
    assert_eq!(provider["additionalProperties"], false);
    assert_eq!(
        provider["properties"]["api_key"]["description"],
        "API key. Environment: OPENAI_API_KEY. Ignored in a project's file until the project is trusted."
    );
    insta::assert_snapshot!(outline(&schema, 0));
}

/// Returns the shape of a schema: one line for each setting.
fn outline(schema: &Value, depth: usize) -> String {
    let indent = "  ".repeat(depth);
    let mut lines = String::new();
    let properties = schema["properties"].as_object();
    for (name, inner) in properties.into_iter().flatten() {
        let default = &inner["default"];
        let default = if default.is_null() {
            String::new()
        } else {
            format!(" = {default}")
        };
        let deprecated = match inner["deprecated"] == true {
            true => " (deprecated)",
            false => "",
        };
        lines += &format!("{indent}{name}: {}{default}{deprecated}\n", inner["type"]);
        lines += &outline(inner, depth + 1);
    }
    if schema["type"] == "array" {
        lines += &outline(&schema["items"], depth);
    }
    if schema["type"] == "object" {
        let others = &schema["additionalProperties"];
        let kind = if others.is_object() {
            &others["type"]
        } else {
            others
        };
        lines += &format!("{indent}others: {kind}\n");
        lines += &outline(others, depth + 1);
    }
    lines
}

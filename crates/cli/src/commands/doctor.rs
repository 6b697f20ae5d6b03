//! `outlast doctor`: finds problems that would keep a prompt from being answered, and says how to fix them.
//!
//! Invariant: it changes nothing, calls no model and shows no secret.

use crate::args::DoctorArguments;
use crate::config::{self, Provider, Settings};
use crate::factory::journal;
use crate::factory::provider;
use crate::output::spinner::Spinner;
use crate::output::{print, print_json};
use crate::platform::clock;
use crate::platform::exit::Exit;
use crate::platform::home;
use crate::platform::runtime;
use jiff::fmt::rfc2822::DateTimeParser;
use outlast_engine::Clock;
use outlast_engine::accounts::Account;
use outlast_engine::provider::{Adapter, ProviderCheck, Timeouts};
use outlast_kernel::Timestamp;
use outlast_kernel::classify::classify;
use outlast_kernel::failure::Failure;
use outlast_kernel::text;
use outlast_kernel::time::Span;
use outlast_kernel::verdict::{Cause, Class};
use outlast_store::journal::Availability;
use serde_json::{Value, json};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The largest clock skew that is accepted: beyond it, times that a server states would be misread.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(30);
const MAX_FILES: usize = 1000;
/// The time limit for one provider check: nobody waits in front of a silent check for longer.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(15);

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckStatus {
    Passed,
    Warning,
    Failed,
}

/// One check, its result and a remedy.
#[derive(Debug)]
struct Check {
    subject: &'static str,
    status: CheckStatus,
    message: String,
    hint: Option<String>,
}

impl Check {
    fn passed(subject: &'static str, says: impl Into<String>) -> Self {
        Self {
            subject,
            status: CheckStatus::Passed,
            message: says.into(),
            hint: None,
        }
    }

    fn warning(subject: &'static str, says: impl Into<String>, remedy: &str) -> Self {
        Self {
            status: CheckStatus::Warning,
            hint: Some(remedy.to_owned()),
            ..Self::passed(subject, says)
        }
    }

    fn failed(subject: &'static str, says: impl Into<String>, remedy: &str) -> Self {
        Self {
            status: CheckStatus::Failed,
            ..Self::warning(subject, says, remedy)
        }
    }

    fn json(&self) -> Value {
        let mut check = json!({
            "check": self.subject, "state": self.status.word(), "says": self.message,
            "remedy": self.hint,
        });
        // The name before 0.2; written until 0.3.
        if self.subject == "network" {
            check["formerly"] = "way".into();
        }
        check
    }

    fn lines(&self) -> String {
        let (word, subject, says) = (self.status.word(), self.subject, &self.message);
        let line = format!("{word:<8}  {subject:<11}  {says}\n");
        match &self.hint {
            Some(remedy) => format!("{line}{:>25}{remedy}\n", "-> "),
            None => line,
        }
    }
}

impl CheckStatus {
    const fn word(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Warning => "warning",
            Self::Failed => "error",
        }
    }
}

pub(crate) fn run(arguments: &DoctorArguments) -> anyhow::Result<Exit> {
    let working = Spinner::start("looking at the files, the settings and the provider");
    let checks = run_all(arguments)?;
    drop(working);
    if arguments.json {
        print_json(&checks.iter().map(Check::json).collect::<Value>())?;
    } else {
        let lines: String = checks.iter().map(Check::lines).collect();
        print(&text::plain(&lines))?;
    }
    let has_failed = |check: &Check| check.status == CheckStatus::Failed;
    Ok(match checks.iter().any(has_failed) {
        true => Exit::Failed,
        false => Exit::Success,
    })
}

/// Runs all checks, in the order in which a prompt needs their subjects.
fn run_all(arguments: &DoctorArguments) -> anyhow::Result<Vec<Check>> {
    let mut checks = files()?;
    checks.extend(sessions());
    let gathered = config::load_layers(&arguments.flags.overrides())?;
    let warning = gathered.untrusted_warning();
    let notices = gathered.notices().to_vec();
    let settings = gathered
        .without_problems()
        .and_then(|layers| Settings::from_layers(&layers));
    let settings = match settings {
        Ok(settings) => settings,
        Err(problems) => {
            checks.push(Check::failed("settings", problems.0, "mend what is named"));
            return Ok(checks);
        }
    };
    checks.push(match warning {
        None => Check::passed("settings", "they can be read"),
        Some(ignored) => Check::warning("settings", ignored, "if you know the project, trust it"),
    });
    let renamed = notices.into_iter();
    checks.extend(renamed.map(|notice| Check::warning("settings", notice, "use the new name")));
    checks.extend(time_scale());
    checks.extend(provider(&settings));
    checks.extend(proxy(&settings));
    checks.extend(connection(arguments, &settings)?);
    Ok(checks)
}

// --- own files ---

fn files() -> anyhow::Result<Vec<Check>> {
    let home = home::path()?;
    let shown = home.display();
    if !home.exists() {
        let says = format!("{shown} is not there yet; it is made when it is needed");
        return Ok(vec![Check::passed("files", says)]);
    }
    let open = accessible_to_others(&home);
    let remedy = format!("chmod -R go-rwx '{shown}'");
    Ok(vec![match open.first() {
        None => Check::passed("files", format!("{shown} is private")),
        Some(first) if *first == shown.to_string() => {
            let says = format!("others on this machine can look into {}", open.join(", "));
            Check::failed("files", says, &remedy)
        }
        Some(_) => {
            let says = format!("only their folder keeps others from {}", open.join(", "));
            Check::warning("files", says, &remedy)
        }
    }])
}

/// Checks that the sessions can be read, if there are any, and reports unfinished ones.
fn sessions() -> Option<Check> {
    let remedy = "put the file aside; `outlast -p` begins a new one";
    let aside = home::path().map(|home| journal::damaged_files(&home));
    let aside = aside.unwrap_or_default();
    let aside: Vec<String> = aside
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    let looked = journal::open_existing().and_then(|journal| {
        let Some(journal) = journal else {
            return Ok(None);
        };
        runtime::run_on_this_thread(async {
            journal.check_integrity().await?;
            Ok(Some((
                journal.sessions().await?,
                journal.unfinished().await?,
            )))
        })
    });
    match looked {
        Ok(None) => None,
        Ok(Some(_)) if !aside.is_empty() => {
            let says = format!("damaged ones are kept as {}", aside.join(", "));
            let remedy = "`sqlite3 FILE .recover` reads what is whole; then remove the file";
            Some(Check::warning("sessions", says, remedy))
        }
        Ok(Some((all, unfinished))) => {
            let left = unfinished
                .iter()
                .filter(|session| session.availability != Availability::InUse)
                .count();
            let says = format!("{} are there, {left} to be resumed", all.len());
            Some(Check::passed("sessions", says))
        }
        Err(error) => Some(Check::failed("sessions", format!("{error:#}"), remedy)),
    }
}

/// Returns the files in our folder that other users may read or write.
#[cfg(unix)]
fn accessible_to_others(home: &Path) -> Vec<String> {
    use std::os::unix::fs::PermissionsExt;
    let inside = std::fs::read_dir(home).into_iter().flatten().flatten();
    let inside = inside.take(MAX_FILES).map(|entry| entry.path());
    let is_open = |path: &std::path::PathBuf| {
        let mode = path.metadata().map(|found| found.permissions().mode());
        mode.is_ok_and(|mode| mode & 0o077 != 0)
    };
    std::iter::once(home.to_owned())
        .chain(inside)
        .filter(is_open)
        .map(|path| path.display().to_string())
        .collect()
}

#[cfg(not(unix))]
fn accessible_to_others(_: &Path) -> Vec<String> {
    Vec::new()
}

// --- settings ---

fn time_scale() -> Option<Check> {
    let remedy = "unset OUTLAST_TIME_SCALE for real work";
    match clock::time_scale() {
        Ok(None) => None,
        Ok(Some(scale)) => {
            let says = format!("the clock runs {scale} times as fast");
            Some(Check::warning("time scale", says, remedy))
        }
        Err(problem) => Some(Check::failed("time scale", problem.0, remedy)),
    }
}

fn provider(settings: &Settings) -> Vec<Check> {
    let Some(provider) = settings.provider.filter(|chosen| *chosen != Provider::Mock) else {
        let says = "none is chosen: the scripted one answers";
        let remedy = "set `provider` and `model` in outlast.toml, or use --provider and --model";
        return vec![Check::warning("provider", says, remedy)];
    };
    let model = match &settings.model {
        Some(model) => Check::passed("provider", format!("{}, model {model}", provider.name())),
        None => {
            let says = format!("{} without a model", provider.name());
            Check::warning("provider", says, "set `model`, or use --model")
        }
    };
    if !provider::accounts(settings, None).is_empty() {
        return vec![model];
    }
    let key = match &settings.api_key_variable {
        Some(variable) => {
            let remedy = format!("set {variable}, or an account in outlast.toml");
            Check::warning("key", "there is none", &remedy)
        }
        None => Check::warning("key", "there is none", "set an account in outlast.toml"),
    };
    vec![model, key]
}

fn proxy(settings: &Settings) -> Vec<Check> {
    let proxies = [
        ("http", &settings.proxy.http),
        ("https", &settings.proxy.https),
    ];
    let except = settings.proxy.no_proxy.as_deref();
    let except = except.map_or(String::new(), |hosts| format!(", except {hosts}"));
    proxies
        .into_iter()
        .filter_map(|(kind, proxy)| {
            let says = format!("{kind} addresses through {}{except}", proxy.as_ref()?);
            Some(Check::passed("proxy", says))
        })
        .collect()
}

// --- connection to the provider ---

fn connection(arguments: &DoctorArguments, settings: &Settings) -> anyhow::Result<Vec<Check>> {
    let Ok(wall) = clock::clock() else {
        return Ok(Vec::new());
    };
    let clock: Arc<dyn Clock> = Arc::new(wall);
    let base_url = arguments.base_url.as_deref();
    let adapter = match provider::provider_adapter(settings, base_url, clock.clone()) {
        Ok(Some(adapter)) => adapter,
        Ok(None) => return Ok(Vec::new()),
        Err(problem) => {
            let remedy = "mend the setting that is named";
            return Ok(vec![Check::failed(
                "network",
                format!("{problem:#}"),
                remedy,
            )]);
        }
    };
    // A scaled clock counts more seconds, but the provider is not faster.
    let scale = clock::time_scale().ok().flatten();
    let adapter = adapter.with_timeouts(Timeouts {
        headers: PROVIDER_TIMEOUT * scale.map_or(1, NonZeroU32::get),
        ..settings.timeouts
    });
    let accounts = provider::accounts(settings, None);
    runtime::run_on_this_thread(async { Ok(check_accounts(&adapter, accounts, &*clock).await) })
}

/// Checks the provider with each configured account.
async fn check_accounts(
    adapter: &Adapter,
    accounts: Vec<Account>,
    clock: &dyn Clock,
) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut seen = None;
    for account in &accounts {
        let name = &account.name;
        match account.source.fetch().await {
            Ok(key) => {
                let checked = adapter.clone().with_credential(key).check().await;
                checks.push(reachability(&checked, &format!("account {name}: ")));
                seen = Some(checked);
            }
            Err(problem) => {
                let says = format!("account {name}: {problem}");
                checks.push(Check::failed("key", says, "mend where its key comes from"));
            }
        }
    }
    if accounts.is_empty() {
        let checked = adapter.check().await;
        checks.push(reachability(&checked, ""));
        seen = Some(checked);
    }
    checks.extend(seen.and_then(|checked| clock_skew(&checked, clock.now())));
    checks
}

fn reachability(checked: &ProviderCheck, who: &str) -> Check {
    let failure = match &checked.result {
        Ok(()) => return Check::passed("network", format!("{who}the provider answers")),
        Err(failure) => failure,
    };
    let verdict = classify(failure);
    let says = format!("{who}{}: {}", verdict.cause.phrase(), failure.message);
    match verdict.cause {
        // Some servers of these dialects have no list of models.
        Cause::ModelNotFound | Cause::InvalidRequest if failure.status == Some(404) => {
            let remedy = "if prompts fail as well, look at the base URL";
            let says = format!("{who}the server answers, but lists no models");
            Check::warning("network", says, remedy)
        }
        cause => {
            let remedy = hint(cause, failure);
            match cause.class() {
                Class::Transient if failure.status.is_some() => {
                    Check::warning("network", says, remedy)
                }
                _ => Check::failed("network", says, remedy),
            }
        }
    }
}

fn hint(cause: Cause, failure: &Failure) -> &'static str {
    match cause {
        Cause::Auth | Cause::Permission => "look at the key: is it whole, and for this provider?",
        Cause::Billing => "look at the balance or the plan of the account",
        Cause::Misconfigured if failure.status.is_some() => "look at the base URL and the proxy",
        Cause::Misconfigured => "look at the proxy and at `http.ca_file` for certificates",
        Cause::Network | Cause::Timeout => "look at the base URL, the proxy and the network",
        Cause::TruncatedStream => {
            "something else answers there: look at the base URL and the proxy"
        }
        _ => "try again later; prompts wait for it",
    }
}

/// Checks the server's clock against ours: with a large difference, the times that the server states are wrong for us.
fn clock_skew(checked: &ProviderCheck, now: Timestamp) -> Option<Check> {
    let date = checked.date.as_deref()?;
    if clock::time_scale().ok().flatten().is_some() {
        return None;
    }
    let Ok(server) = DateTimeParser::new().parse_timestamp(date) else {
        let says = "the server states a date that is none";
        return Some(Check::warning(
            "clock",
            says,
            "times that it states are not used",
        ));
    };
    let server = Timestamp::from_millis(u64::try_from(server.as_millisecond()).unwrap_or_default());
    let skew = server.since(now).max(now.since(server));
    if skew <= MAX_CLOCK_SKEW {
        return Some(Check::passed("clock", "it agrees with the server's"));
    }
    let says = format!("it differs from the server's by {}", Span(skew));
    Some(Check::warning(
        "clock",
        says,
        "set the machine's clock (NTP)",
    ))
}

//! The simple checks: a regular expression, the existence of a file, output that is not empty.

use super::{Artifact, Finding, MAX_VIOLATION_BYTES, quoted, sanitize};
use crate::entry::Problem;
use outlast_kernel::verdict::Cause;
use regex::Regex;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Maximum bytes of the artifact to show.
const MAX_SHOWN_BYTES: usize = 200;

/// Checks whether the expression matches the artifact, or does not if it must not.
pub(super) fn check_regex(
    pattern: &str,
    negated: bool,
    (name, bytes): Artifact<'_>,
) -> Result<Finding, Problem> {
    let expression = Regex::new(pattern).map_err(|error| {
        let message = format!("the expression `{pattern}` cannot be used: {error}");
        Problem::new(Cause::Misconfigured, message)
    })?;
    let text = String::from_utf8_lossy(bytes);
    let found = expression.find(&text);
    let (message, looked_at) = match (found, negated) {
        (Some(_), false) | (None, true) => return Ok(Finding::default()),
        (Some(found), true) => {
            let line = 1 + text[..found.start()].matches('\n').count();
            let what = quoted(found.as_str(), MAX_SHOWN_BYTES);
            (
                format!("`{name}` matches `{pattern}`, which it must not"),
                format!("on line {line} there is {what}"),
            )
        }
        (None, false) => (
            format!("`{name}` does not match `{pattern}`"),
            match text.is_empty() {
                true => "it is empty".to_owned(),
                false => format!("it begins with {}", quoted(&text, MAX_SHOWN_BYTES)),
            },
        ),
    };
    let violation = sanitize(&format!("{message}: {looked_at}"), MAX_VIOLATION_BYTES);
    Ok(Finding::breached(Cause::ContractBroken, message, violation))
}

/// Checks whether the file exists; `name` is its name for messages.
pub(super) fn check_file_exists(path: &Path, name: &Path, non_empty: bool) -> Finding {
    let what = match fs::metadata(path) {
        Ok(_) if !non_empty => return Finding::default(),
        Ok(file) if file.is_file() && file.len() > 0 => return Finding::default(),
        Ok(file) if file.is_file() => "is empty".to_owned(),
        Ok(_) => "is not a file".to_owned(),
        Err(error) if error.kind() == ErrorKind::NotFound => "is not there".to_owned(),
        Err(error) => format!("cannot be looked at: {error}"),
    };
    let message = sanitize(&format!("`{}` {what}", name.display()), MAX_VIOLATION_BYTES);
    Finding::breached(Cause::ContractBroken, message.clone(), message)
}

/// Checks whether the artifact has anything but white space.
pub(super) fn check_non_empty((name, bytes): Artifact<'_>) -> Finding {
    if !bytes.trim_ascii().is_empty() {
        return Finding::default();
    }
    let message = format!("`{name}` is empty");
    Finding::breached(Cause::ContractBroken, message.clone(), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the message and the violation.
    fn of(finding: Finding) -> Option<(String, String)> {
        let mut broken = finding.breach?;
        assert_eq!(broken.cause, Cause::ContractBroken);
        assert_eq!(broken.violations.len(), 1);
        Some((broken.message, broken.violations.remove(0)))
    }

    #[test]
    fn regex_check_reports_missing_or_forbidden_match() {
        let table = [
            ("^ok", false, "ok, done", None),
            ("^ok", true, "not ok", None),
            ("(?m)^ok$", false, "well\nok\n", None),
            (
                "^ok",
                false,
                "not\nok",
                Some((
                    "`output` does not match `^ok`",
                    "`output` does not match `^ok`: it begins with \"not\\nok\"",
                )),
            ),
            (
                "^ok",
                false,
                "",
                Some((
                    "`output` does not match `^ok`",
                    "`output` does not match `^ok`: it is empty",
                )),
            ),
            (
                "TODO.*",
                true,
                "one\ntwo TODO: \u{1b}[31mthree",
                Some((
                    "`output` matches `TODO.*`, which it must not",
                    "`output` matches `TODO.*`, which it must not: on line 2 there is \"TODO: three\"",
                )),
            ),
        ];
        for (pattern, negated, text, expected) in table {
            let finding = check_regex(pattern, negated, ("output", text.as_bytes())).unwrap();
            let expected = expected.map(|(one, other)| (one.to_owned(), other.to_owned()));
            assert_eq!(of(finding), expected, "{pattern} in {text:?}");
        }
    }

    #[test]
    fn regex_violation_of_long_output_is_short() {
        let long = "é".repeat(100_000);
        let finding = check_regex("^ok", false, ("output", long.as_bytes())).unwrap();
        assert!(of(finding).unwrap().1.len() < 300);
    }

    #[test]
    fn invalid_regex_is_a_misconfiguration() {
        let problem = check_regex("(", false, ("output", b"x")).unwrap_err();
        assert_eq!(problem.cause, Cause::Misconfigured);
    }

    #[test]
    fn file_check_requires_presence_and_optionally_content() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("empty"), "").unwrap();
        fs::write(folder.path().join("full"), "x").unwrap();
        fs::create_dir(folder.path().join("folder")).unwrap();
        let table = [
            ("full", false, None),
            ("full", true, None),
            ("empty", false, None),
            ("folder", false, None),
            ("empty", true, Some("`empty` is empty")),
            ("folder", true, Some("`folder` is not a file")),
            ("out/plan.md", false, Some("`out/plan.md` is not there")),
            ("out/plan.md", true, Some("`out/plan.md` is not there")),
        ];
        for (name, non_empty, expected) in table {
            let name = Path::new(name);
            let finding = check_file_exists(&folder.path().join(name), name, non_empty);
            let message = of(finding).map(|(message, _)| message);
            assert_eq!(message.as_deref(), expected, "{name:?} {non_empty}");
        }
    }

    #[test]
    fn white_space_is_empty() {
        for (bytes, is_empty) in [
            (&b""[..], true),
            (b" \n\t", true),
            (b" x", false),
            (b"\xff", false),
        ] {
            let finding = check_non_empty(("output", bytes));
            assert_eq!(of(finding).is_some(), is_empty, "{bytes:?}");
        }
    }
}

//! The MCP servers in the settings.

use crate::config::layers::Layers;
use crate::config::settings::{MAX_TOOL_TIMEOUT, Secret};
use crate::platform::exit::UsageError;
use outlast_session::tools::Effect;
use std::collections::BTreeMap;
use std::time::Duration;

/// A configured MCP server.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(all(unix, feature = "mcp")),
    allow(dead_code, reason = "what is not built in is only checked and named")
)]
pub(crate) struct McpServerSettings {
    pub(crate) name: String,
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) variables: Vec<(String, Secret)>,
    /// The timeout of its tools; `None` stands for that of all tools.
    pub(crate) timeout: Option<Duration>,
    pub(crate) effects: BTreeMap<String, Effect>,
}

/// Returns all servers, ordered by name.
pub(in crate::config) fn all(layers: &Layers) -> Result<Vec<McpServerSettings>, UsageError> {
    let names = layers.names("mcp").into_iter();
    names.map(|name| server(layers, name)).collect()
}

fn server(layers: &Layers, name: &str) -> Result<McpServerSettings, UsageError> {
    let own = layers.named("mcp", name);
    let wrong = |problem: String| UsageError(format!("MCP server `{name}`: {problem}"));
    let command: Option<String> = own.get("command");
    let command = command.ok_or_else(|| wrong("`command` is missing".to_owned()))?;
    let mut words = split_command_line(&command).map_err(wrong)?.into_iter();
    let program = words.next();
    Ok(McpServerSettings {
        name: name.to_owned(),
        program: program.ok_or_else(|| wrong("`command` is empty".to_owned()))?,
        arguments: words.collect(),
        variables: own.secrets("env"),
        timeout: match own.get("timeout") {
            Some(Duration::ZERO) => Some(MAX_TOOL_TIMEOUT),
            limit => limit,
        },
        effects: effects(&own.value::<String>("effects")).map_err(wrong)?,
    })
}

/// Parses the effects of running each tool twice: `tool=pure, other=idempotent`.
fn effects(text: &str) -> Result<BTreeMap<String, Effect>, String> {
    let parts = text.split(',').map(str::trim);
    let parts = parts.filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (tool, effect) = part.split_once('=').unwrap_or((part, ""));
            let effect = match effect.trim() {
                "pure" => Effect::Pure,
                "idempotent" => Effect::Idempotent,
                "at_most_once" => Effect::AtMostOnce,
                _ => {
                    return Err(format!(
                        "`effects`: expected `tool=pure`, `tool=idempotent` or `tool=at_most_once`, separated by commas, found `{part}`"
                    ));
                }
            };
            Ok((tool.trim().to_owned(), effect))
        })
        .collect()
}

/// Splits a command line into words like a shell that knows nothing but quotes: `'…'` is kept as it is; in `"…"` and
/// outside, a `\` keeps the character after it.
fn split_command_line(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('\\', None | Some('"')) => {
                let kept = characters.next();
                let kept = kept.ok_or("`command` ends with a `\\`")?;
                word.get_or_insert_default().push(kept);
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    match quote {
        Some(open) => Err(format!("`command` has a {open} that is not closed")),
        None => {
            words.extend(word);
            Ok(words)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_splits_at_unquoted_spaces() {
        let table: [(&str, &[&str]); 6] = [
            ("npx  -y server", &["npx", "-y", "server"]),
            (r#"run "a b" 'c "d'"#, &["run", "a b", "c \"d"]),
            (r#"run a" "b '' """#, &["run", "a b", "", ""]),
            (r#"run a\ b "\"" '\'"#, &["run", "a b", "\"", "\\"]),
            ("run $HOME * | x", &["run", "$HOME", "*", "|", "x"]),
            ("  ", &[]),
        ];
        for (line, expected) in table {
            assert_eq!(split_command_line(line).unwrap(), expected, "{line}");
        }
        for line in ["run 'a", "run \"a", "run \\"] {
            assert!(split_command_line(line).is_err(), "{line}");
        }
    }

    #[test]
    fn effects_are_set_by_name() {
        let set = effects("read = pure, write_file=idempotent,send=at_most_once,").unwrap();
        let expected = [
            ("read", Effect::Pure),
            ("send", Effect::AtMostOnce),
            ("write_file", Effect::Idempotent),
        ];
        assert!(
            set.iter()
                .map(|(name, effect)| (name.as_str(), *effect))
                .eq(expected)
        );
        for wrong in ["read", "read=harmless", "=", "read:pure"] {
            assert!(effects(wrong).is_err(), "{wrong}");
        }
    }
}

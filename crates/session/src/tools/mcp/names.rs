//! The names of server tools: `mcp__<server>__<tool>`, in the characters and the length that every provider accepts.
//!
//! Invariant: a name depends on the server's and the tool's names alone, so that it is the same in every process.

/// Maximum length of a name that providers accept.
const MAX_NAME_LENGTH: usize = 64;

/// Returns the prefix of the names of a server's tools.
pub(super) fn prefix(server: &str) -> String {
    format!("mcp__{server}__")
}

/// Returns the name of a tool. Invalid characters are replaced; the end of a long name becomes a hash of it.
pub(super) fn full(server: &str, tool: &str) -> String {
    let plain = |c: char| match c {
        'A'..='Z' | 'a'..='z' | '0'..='9' | '_' | '-' => c,
        _ => '_',
    };
    let name: String = prefix(server)
        .chars()
        .chain(tool.chars())
        .map(plain)
        .collect();
    if name.len() <= MAX_NAME_LENGTH && !tool.is_empty() {
        return name;
    }
    let number = format!("_{:08x}", number(tool));
    let room = MAX_NAME_LENGTH - number.len();
    format!("{}{number}", &name[..name.len().min(room)])
}

/// Returns the FNV-1a hash: the same on every machine and in every version.
fn number(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |sum, byte| {
        (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_names_are_sanitized_for_providers() {
        let long = "x".repeat(80);
        let table = [
            ("echo", "mcp__files__echo"),
            ("read-file_2", "mcp__files__read-file_2"),
            ("a.b/c d", "mcp__files__a_b_c_d"),
            ("größe\u{1b}[31m", "mcp__files__gr__e__31m"),
            ("", "mcp__files___811c9dc5"),
            (
                &long,
                "mcp__files__xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_",
            ),
        ];
        for (tool, expected) in table {
            let name = full("files", tool);
            assert!(name.starts_with(expected), "{name}");
            assert!(name.len() <= MAX_NAME_LENGTH, "{name}");
            let takes = |b: u8| b.is_ascii_alphanumeric() || b"_-".contains(&b);
            assert!(name.bytes().all(takes), "{name}");
        }
    }

    #[test]
    fn truncated_names_stay_distinct() {
        let long = "x".repeat(80);
        let names = ["a", "b"].map(|end| full("files", &format!("{long}{end}")));
        assert_ne!(names[0], names[1]);
        assert_eq!(names[0].len(), MAX_NAME_LENGTH);
    }
}

//! Converts a server's result to text for the model.
//!
//! Invariant: content other than text is named and not passed on. The caller bounds the length of the whole.

use outlast_engine::tools::Output;
use outlast_kernel::text;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

/// Maximum length of a name or an address in a note, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// Returns the result of a call.
pub(super) fn tool_output(result: &CallToolResult) -> Output {
    let parts: Vec<String> = result.content.iter().map(part).collect();
    let mut said = parts.join("\n");
    // A server that sends both sends the same content twice.
    if let (true, Some(value)) = (said.is_empty(), &result.structured_content) {
        said = value.to_string();
    }
    if said.is_empty() {
        said = "[no output]".to_owned();
    }
    let said = text::plain(&said).into_owned();
    match result.is_error {
        Some(true) => Output::error(said),
        Some(false) | None => Output::ok(said),
    }
}

fn part(content: &ContentBlock) -> String {
    match content {
        ContentBlock::Text(content) => content.text.clone(),
        ContentBlock::Image(image) => omitted_note("image", &image.mime_type, image.data.len()),
        ContentBlock::Audio(audio) => omitted_note("audio", &audio.mime_type, audio.data.len()),
        ContentBlock::ResourceLink(link) => format!("[see {}]", short(&link.uri)),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                format!("[{}]\n{text}", short(uri))
            }
            ResourceContents::BlobResourceContents { uri, blob, .. } => {
                omitted_note("resource", uri, blob.len())
            }
            _ => "[a resource of an unknown kind]".to_owned(),
        },
        _ => "[content of an unknown kind]".to_owned(),
    }
}

/// Names an omitted part; `length` is its length in Base64.
fn omitted_note(kind: &str, name: &str, length: usize) -> String {
    let bytes = length / 4 * 3;
    format!(
        "[{kind} {} of about {bytes} bytes, which is left out]",
        short(name)
    )
}

fn short(name: &str) -> String {
    text::bounded(name, MAX_NAME_BYTES).replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn parse_output(result: Value) -> Output {
        tool_output(&serde_json::from_value(result).unwrap())
    }

    #[test]
    fn result_joins_texts_and_describes_other_content() {
        let image = json!({"type": "image", "mimeType": "image/png", "data": "QUFB".repeat(100)});
        let file = json!({"type": "resource", "resource": {"uri": "file:///a", "text": "content"}});
        let link = json!({"type": "resource_link", "uri": "file:///b", "name": "b"});
        let first = json!({"type": "text", "text": "one\u{1b}[31m"});
        let all = parse_output(json!({"content": [first, image, file, link]}));
        let expected = "one\n[image image/png of about 300 bytes, which is left out]\n[file:///a]\ncontent\n[see file:///b]";
        assert_eq!(all, Output::ok(expected));
    }

    #[test]
    fn result_keeps_error_flag_and_is_never_empty() {
        let table = [
            (
                json!({"content": [], "isError": false}),
                Output::ok("[no output]"),
            ),
            (
                json!({"content": [{"type": "text", "text": "no"}], "isError": true}),
                Output::error("no"),
            ),
            (
                json!({"content": [], "structuredContent": {"sum": 3}}),
                Output::ok("{\"sum\":3}"),
            ),
        ];
        for (result, expected) in table {
            assert_eq!(parse_output(result), expected);
        }
    }
}

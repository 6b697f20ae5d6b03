//! Writes a proxy's own responses, and inspects bodies that are no stream.

use super::response_check;
use crate::completion::event_frame;
use crate::{ApiError, Dialect, Interruption};
use outlast_kernel::Timestamp;
use outlast_kernel::failure::Failure;
use serde_json::{Value, json};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The kind of a body, whatever its headers state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// Server-sent events.
    EventStream,
    /// A whole response, or an error in place of one.
    Json,
    /// A web page, sent by an intermediary that could not reach the provider.
    Html,
}

/// Returns the kind of a body by its first bytes; `None` as long as they are only blanks.
pub fn sniff_body(head: &[u8]) -> Option<BodyKind> {
    let head = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head);
    let first = head.iter().find(|byte| !byte.is_ascii_whitespace())?;
    Some(match first {
        b'{' | b'[' => BodyKind::Json,
        b'<' => BodyKind::Html,
        _ => BodyKind::EventStream,
    })
}

impl Dialect {
    /// Checks a response that came as a whole, and returns the failure that came in its place, if any.
    ///
    /// A response that its server works on in the background is fine: the client requested that mode.
    pub fn check_response(
        self,
        provider: &str,
        body: &[u8],
        now: Timestamp,
    ) -> Result<(), Box<Failure>> {
        if response_check::is_valid(self, body) {
            return Ok(());
        }
        let text = String::from_utf8_lossy(body);
        match self.decode_response(provider, &text, now) {
            Err(_) if self == Self::OpenaiResponses && is_in_background(&text) => Ok(()),
            read => read.map(drop),
        }
    }

    /// Returns the frames that end a stream with an error, so that no client takes it for a clean end. `kind` is the
    /// provider's name of the error, `status` the HTTP status that it would have had (0 if none).
    ///
    /// The Responses API needs two frames: some clients know only the one, some only the other.
    pub fn final_error_frame(self, kind: &str, status: u16, message: &str) -> String {
        let problem = ApiError::new(kind, message);
        let here = Interruption::default();
        match self {
            Self::Anthropic => self.encode_error_frame(&problem, &here),
            Self::OpenaiChat if status == 0 => self.encode_error_frame(&problem, &here),
            Self::OpenaiChat => {
                self.encode_error_frame(&problem.with_code(&status.to_string()), &here)
            }
            Self::OpenaiResponses => {
                let error = json!({
                    "type": kind, "code": kind, "message": message, "param": null,
                });
                let event = json!({
                    "type": "error", "sequence_number": 0, "code": kind, "message": message,
                    "param": null, "error": error,
                });
                event_frame(&event) + &self.encode_error_frame(&problem, &here)
            }
        }
    }

    /// Returns the body of an error response of our own.
    pub fn error_body(self, kind: &str, message: &str) -> String {
        self.encode_error(&ApiError::new(kind, message))
    }
}

fn is_in_background(body: &str) -> bool {
    let response: Value = serde_json::from_str(body).unwrap_or_default();
    response["object"] == "response"
        && response["background"] == true
        && matches!(response["status"].as_str(), Some("queued" | "in_progress"))
}

//! Responses other than completions: errors, pages, garbage.

use super::{BodyEnd, EVENTS, HTML, Head, JSON, Piece, Plan, RequestContext};
use crate::compress;
use crate::error_response::{self, ErrorResponse};
use crate::reply::{Disconnect, PageForm};
use bytes::Bytes;
use outlast_dialect::{ApiError, Dialect};
use std::time::Duration;

const ENDLESS_CHUNK: &[u8] = &[b'x'; 4096];

impl RequestContext<'_> {
    /// Returns one body of known length.
    pub(crate) fn document(self, status: u16, content_type: &str, body: impl Into<Bytes>) -> Plan {
        let piece = Piece::from(body);
        let mut headers = self.headers(content_type);
        headers.push(("content-length".to_owned(), piece.bytes.len().to_string()));
        Plan {
            hold: Duration::ZERO,
            head: Some(Head { status, headers }),
            pieces: vec![piece],
            end: BodyEnd::Finish,
        }
    }

    /// Returns an error for a request that no provider would accept.
    pub(crate) fn invalid_request(self, status: u16, message: &str) -> Plan {
        let mut refusal = error_response::with_status(self.dialect, status, None);
        message.clone_into(&mut refusal.error.message);
        self.error_response(&refusal)
    }

    pub(super) fn slow_error(self, status: u16) -> Plan {
        let refusal = error_response::with_status(self.dialect, status, None);
        let mut body = self.dialect.encode_error(&refusal.error);
        body.truncate(body.len() / 2);
        self.document(status, JSON, body)
            .without_length(BodyEnd::Silence)
    }

    pub(super) fn endless_error(self, status: u16) -> Plan {
        let opening = r#"{"error":{"message":"This goes on and on: "#;
        let bytes = Bytes::from_static(ENDLESS_CHUNK);
        let every = Duration::ZERO;
        self.document(status, JSON, opening)
            .without_length(BodyEnd::Repeat { bytes, every })
    }

    pub(super) fn echo_key(self) -> Plan {
        let key = self.facts.key.as_deref().unwrap_or("none");
        let problem = match self.dialect {
            Dialect::Anthropic => {
                ApiError::new("authentication_error", &format!("invalid x-api-key: {key}"))
            }
            Dialect::OpenaiChat | Dialect::OpenaiResponses => ApiError::new(
                "invalid_request_error",
                &format!("Incorrect API key provided: {key}. Find yours in the settings."),
            )
            .with_code("invalid_api_key"),
        };
        self.error_response(&ErrorResponse::new(401, problem))
    }

    pub(super) fn redirect(self, to: &str) -> Plan {
        let mut plan = self.document(307, HTML, "<p>Moved.</p>");
        plan.add_headers(&[("location".to_owned(), to.to_owned())]);
        plan
    }

    /// Returns every byte from the first to the last, in disorder.
    pub(super) fn garbage(self) -> Plan {
        let disorder = |number: u32| number.wrapping_mul(2_654_435_761).to_be_bytes()[0];
        let bytes: Vec<u8> = (0..2048).map(disorder).collect();
        let content_type = match self.facts.is_streamed {
            true => EVENTS,
            false => JSON,
        };
        self.document(200, content_type, bytes)
    }

    pub(super) fn page(self, status: u16, form: PageForm) -> Plan {
        let name = match status {
            403 => "Forbidden",
            429 => "Too Many Requests",
            502 => "Bad Gateway",
            503 => "Service Temporarily Unavailable",
            504 => "Gateway Time-out",
            _ => "Error",
        };
        let page = format!(
            "<html>\r\n<head><title>{status} {name}</title></head>\r\n<body>\r\n<center><h1>{status} {name}</h1>\
             </center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
        );
        match form {
            PageForm::Stream => self.document(200, EVENTS, page),
            PageForm::Html => self.document(200, HTML, page),
            PageForm::Status => self.document(status, HTML, page),
        }
    }

    pub(super) fn bomb(self) -> Plan {
        let content_type = match self.facts.is_streamed {
            true => EVENTS,
            false => JSON,
        };
        let opening = match self.facts.is_streamed {
            true => "data: {\"text\":\"",
            false => "{\"text\":\"",
        };
        let mut plan = self
            .document(200, content_type, "")
            .without_length(BodyEnd::Finish);
        plan.add_headers(&[("content-encoding".to_owned(), "gzip".to_owned())]);
        let pieces = compress::gzip_bomb(opening.as_bytes()).into_iter();
        plan.pieces = pieces.map(Piece::from).collect();
        plan
    }
}

impl Plan {
    pub(super) fn disconnected(how: Disconnect) -> Self {
        Self {
            hold: Duration::ZERO,
            head: None,
            pieces: Vec::new(),
            end: BodyEnd::Disconnect(how),
        }
    }
}

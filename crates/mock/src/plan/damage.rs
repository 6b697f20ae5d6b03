//! Damages responses in transit.

use super::{BodyEnd, JSON, Piece, Plan, RequestContext};
use crate::compress;
use crate::error_response::ErrorResponse;
use crate::reply::Disconnect;
use bytes::Bytes;
use outlast_dialect::{Dialect, ErrorForm, Interruption};
use std::time::Duration;

/// Rate limit headers that a response with status 200 may carry in addition to its error.
const LIMIT_HEADER_PREFIXES: [&str; 2] = ["anthropic-ratelimit-", "x-codex-"];

impl Plan {
    pub(super) fn add_headers(&mut self, headers: &[(String, String)]) {
        if let Some(head) = &mut self.head {
            head.headers.extend_from_slice(headers);
        }
    }

    fn set_length(&mut self, length: Option<usize>) {
        let Some(head) = &mut self.head else { return };
        let is_length = |name: &str| name == "content-length";
        let had_length = head.headers.iter().any(|(name, _)| is_length(name));
        head.headers.retain(|(name, _)| !is_length(name));
        if let (Some(length), true) = (length, had_length) {
            let length = ("content-length".to_owned(), length.to_string());
            head.headers.push(length);
        }
    }

    fn length(&self) -> usize {
        self.pieces.iter().map(|piece| piece.bytes.len()).sum()
    }

    /// Changes the end, and removes the length from which a client could tell that the body is complete.
    pub(super) fn without_length(mut self, end: BodyEnd) -> Self {
        self.set_length(None);
        Self { end, ..self }
    }

    pub(super) fn with_delay(mut self, delay: Duration) -> Self {
        self.pieces.iter_mut().for_each(|piece| piece.wait = delay);
        self
    }

    /// Keeps the opening and so many pieces, but never the last; then comes the given end.
    pub(super) fn truncated_to_pieces(mut self, pieces: usize, end: BodyEnd) -> Self {
        let most = self.pieces.len().saturating_sub(1);
        self.pieces.truncate(pieces.saturating_add(1).min(most));
        Self { end, ..self }
    }

    pub(super) fn with_keepalives(
        self,
        pieces: usize,
        every: Duration,
        ask: RequestContext<'_>,
    ) -> Self {
        if ask.facts.is_streamed {
            let bytes = Bytes::from(ask.dialect.keepalive_frame());
            return self.truncated_to_pieces(pieces, BodyEnd::Repeat { bytes, every });
        }
        // Whitespace that may precede a JSON body without being part of it.
        let bytes = Bytes::from_static(b"\n");
        let mut plan = self.without_length(BodyEnd::Repeat { bytes, every });
        plan.pieces.clear();
        plan
    }

    /// Cuts the body after exactly that many bytes.
    pub(super) fn truncated_to_bytes(mut self, bytes: usize, clean: bool) -> Self {
        let mut left = bytes;
        for piece in &mut self.pieces {
            piece.bytes.truncate(left);
            left -= piece.bytes.len();
        }
        self.pieces.retain(|piece| !piece.bytes.is_empty());
        if clean {
            let length = self.length();
            self.set_length(Some(length));
            return self;
        }
        Self {
            end: BodyEnd::Disconnect(Disconnect::Closed),
            ..self
        }
    }

    /// Removes the end of the last frame of one piece.
    pub(super) fn with_malformed_frame(mut self, pieces: usize) -> Self {
        const LOST: usize = 3;
        let last = self.pieces.len().saturating_sub(1);
        if let Some(piece) = self.pieces.get_mut(pieces.saturating_add(1).min(last)) {
            let text = String::from_utf8_lossy(&piece.bytes).into_owned();
            let frame = text.trim_end_matches('\n');
            let mut end = frame.len().saturating_sub(LOST);
            while !frame.is_char_boundary(end) {
                end -= 1;
            }
            piece.bytes = Bytes::from(format!("{}{}", &frame[..end], &text[frame.len()..]));
        }
        let length = self.length();
        self.set_length(Some(length));
        self
    }

    pub(super) fn compressed(mut self) -> Self {
        let pieces: Vec<Bytes> = self.pieces.into_iter().map(|piece| piece.bytes).collect();
        self.pieces = compress::gzip(&pieces)
            .into_iter()
            .map(Piece::from)
            .collect();
        self.add_headers(&[("content-encoding".to_owned(), "gzip".to_owned())]);
        let length = self.length();
        self.set_length(Some(length));
        self
    }
}

impl RequestContext<'_> {
    /// Ends a completion that begins well with an error.
    pub(super) fn interrupted(
        self,
        answer: Plan,
        refusal: &ErrorResponse,
        after: Option<usize>,
        form: ErrorForm,
    ) -> Plan {
        let is_report = |name: &str| {
            LIMIT_HEADER_PREFIXES
                .iter()
                .any(|report| name.starts_with(report))
        };
        let mut reports = refusal.headers.clone();
        reports.retain(|(name, _)| is_report(name));
        let mut plan = if self.facts.is_streamed {
            let mut plan = match after {
                Some(pieces) => answer.truncated_to_pieces(pieces, BodyEnd::Finish),
                None => Plan {
                    pieces: Vec::new(),
                    ..answer
                },
            };
            let frame = self.error_frame(&plan, refusal, form);
            plan.pieces.push(Piece::from(frame));
            plan
        } else {
            self.document(200, JSON, self.error_body(refusal, form))
        };
        plan.add_headers(&reports);
        plan
    }

    fn error_frame(self, plan: &Plan, refusal: &ErrorResponse, form: ErrorForm) -> String {
        let frames = |piece: &Piece| {
            String::from_utf8_lossy(&piece.bytes)
                .matches("\n\n")
                .count()
        };
        let interruption = Interruption {
            model: &self.facts.model,
            frames_before: plan.pieces.iter().map(frames).sum(),
            form,
        };
        self.dialect
            .encode_error_frame(&refusal.error, &interruption)
    }

    /// In the dialect whose streams can end with an error, a body can contain one, too.
    fn error_body(self, refusal: &ErrorResponse, form: ErrorForm) -> String {
        if self.dialect != Dialect::OpenaiResponses || form == ErrorForm::Event {
            return self.dialect.encode_error(&refusal.error);
        }
        let interruption = Interruption {
            model: &self.facts.model,
            ..Interruption::default()
        };
        let frame = self
            .dialect
            .encode_error_frame(&refusal.error, &interruption);
        let data = frame.split("data: ").nth(1).unwrap_or_default();
        let event: serde_json::Value = serde_json::from_str(data).unwrap_or_default();
        event["response"].to_string()
    }
}

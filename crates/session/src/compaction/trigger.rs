//! Decides for which failures a smaller conversation may help.
//!
//! Fewer words do not help against a provider that refuses bytes or media: with room left in the window, a compaction
//! would lose a conversation for nothing.

use super::size_budget::percent_of;
use outlast_dialect::Request;
use outlast_engine::compaction::Size;
use outlast_engine::token_estimate;
use outlast_kernel::event::CompactionReason;
use outlast_kernel::failure::ClassifiedFailure;
use outlast_kernel::verdict::Cause;

const MEDIA: [&str; 8] = [
    "image",
    "media",
    "picture",
    "photo",
    "attachment",
    "pdf",
    "video",
    "audio",
];
const SLOW_UPLOAD: [&str; 5] = [
    "request body",
    "reading body",
    "reading the body",
    "read body",
    "upload",
];

/// Returns the reason for a compaction if a smaller conversation may help against the failure.
pub(super) fn compaction_reason(
    judged: &ClassifiedFailure,
    request: &Request,
    size: Size,
) -> Option<CompactionReason> {
    let message = judged.failure.message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    let mut words = message.split(|c: char| !c.is_alphanumeric());
    match judged.verdict.cause {
        Cause::ContextOverflow => Some(CompactionReason::Overflow),
        Cause::PayloadTooLarge => {
            let media = words.any(is_media)
                || token_estimate::image_bytes(request)
                    > token_estimate::request_bytes(request) / 2;
            let has_room = size
                .window
                .is_some_and(|window| size.tokens < percent_of(window, 90));
            (!media && !has_room).then_some(CompactionReason::TooManyBytes)
        }
        _ if judged.failure.status == Some(408) && says(&SLOW_UPLOAD) => {
            Some(CompactionReason::SlowUpload)
        }
        _ => None,
    }
}

/// Matches the beginning of a word, so that "immediately" does not count as "media".
fn is_media(word: &str) -> bool {
    MEDIA.iter().any(|media| word.starts_with(media))
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_dialect::{Image, Message, Part, Role};
    use outlast_kernel::Timestamp;
    use outlast_kernel::failure::Failure;

    fn request(image: usize) -> Request {
        let image = Part::Image(Image {
            media_type: "image/png".to_owned(),
            data: "x".repeat(image),
        });
        let (role, parts) = (Role::User, vec![image]);
        Request {
            messages: vec![Message { role, parts }, Message::user("x".repeat(1000))],
            ..Request::default()
        }
    }

    fn helps(status: u16, message: &str, image: usize, size: Size) -> Option<CompactionReason> {
        let judged =
            ClassifiedFailure::new(Failure::http("p", status, message, Timestamp::default()));
        compaction_reason(&judged, &request(image), size)
    }

    #[test]
    fn compaction_reason_depends_on_failure_images_and_window() {
        use CompactionReason::{Overflow, SlowUpload, TooManyBytes};
        let size = |tokens, window| Size { tokens, window };
        let (unknown, full, roomy) = (
            size(100, None),
            size(90_000, Some(100_000)),
            size(89_999, Some(100_000)),
        );
        let overflow = "prompt is too long: 210000 tokens > 200000 maximum";
        let large = "Request exceeds the maximum size";
        let slow = "Timed out reading request body. Try again, or use a smaller request size.";
        let table = [
            (400, overflow, (0, unknown), Some(Overflow)),
            (400, overflow, (0, roomy), Some(Overflow)),
            (413, large, (0, unknown), Some(TooManyBytes)),
            (413, large, (0, full), Some(TooManyBytes)),
            (413, large, (0, roomy), None),
            (413, large, (5000, unknown), None),
            (413, large, (500, unknown), Some(TooManyBytes)),
            (413, "The image is too large", (0, unknown), None),
            (
                413,
                "Request too large, refused immediately",
                (0, unknown),
                Some(TooManyBytes),
            ),
            (408, slow, (0, unknown), Some(SlowUpload)),
            (408, "Request timeout", (0, unknown), None),
            (529, "Overloaded", (0, full), None),
            (401, "invalid x-api-key", (0, full), None),
            (500, "error while reading request body", (0, full), None),
        ];
        for (status, message, at, expected) in table {
            let got = helps(status, message, at.0, at.1);
            assert_eq!(got, expected, "{status} {message} {at:?}");
        }
    }
}

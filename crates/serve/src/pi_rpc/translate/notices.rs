//! Notices and status lines for the user: why a turn waits, and what was done about failures.

use super::frame::{Frame, Request};
use crate::event_encoder::JsonLines;
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Body, Usage};
use outlast_kernel::verdict::Cause;

const STATUS_KEY: &str = "outlast";

/// Numbers the notices, and tracks whether a status is shown.
#[derive(Default)]
pub(super) struct Notices {
    count: u64,
    has_status: bool,
}

impl Notices {
    /// Shows a notice, if the event has one.
    pub(super) fn notify(&mut self, body: &Body, out: &mut JsonLines) {
        if let Some((message, notify_type)) = notice_text(body) {
            let request = Request::Notify {
                id: self.id(),
                message: &message,
                notify_type,
            };
            out.push(&Frame::ExtensionUiRequest(request));
        }
    }

    /// Shows the end of a wait and its cause as the status.
    pub(super) fn wait(&mut self, until: Timestamp, cause: Option<Cause>, out: &mut JsonLines) {
        self.has_status = true;
        let cause = cause.map_or(String::new(), |cause| format!(": {}", cause.phrase()));
        self.set_status(Some(&format!("waiting until {until}{cause}")), out);
    }

    /// Clears the status of a wait.
    pub(super) fn end_wait(&mut self, out: &mut JsonLines) {
        if std::mem::take(&mut self.has_status) {
            self.set_status(None, out);
        }
    }

    fn set_status(&mut self, status_text: Option<&str>, out: &mut JsonLines) {
        let request = Request::SetStatus {
            id: self.id(),
            status_key: STATUS_KEY,
            status_text,
        };
        out.push(&Frame::ExtensionUiRequest(request));
    }

    fn id(&mut self) -> String {
        self.count += 1;
        format!("outlast-{}", self.count)
    }
}

fn notice_text(body: &Body) -> Option<(String, &'static str)> {
    let info = |text: String| Some((text, "info"));
    let warning = |text: String| Some((text, "warning"));
    match body {
        Body::Seam { by } => info(format!(
            "the answer goes on where it broke off ({})",
            by.phrase()
        )),
        Body::ModelSwitched {
            from,
            to,
            cause,
            until,
        } => {
            let until = until.map_or(String::new(), |until| format!(", until {until}"));
            match cause {
                Some(cause) => warning(format!(
                    "{}: {to} is asked instead of {from}{until}",
                    cause.phrase()
                )),
                None => info(format!("{to} is asked instead of {from}{until}")),
            }
        }
        Body::AccountBlocked { name, cause, until } => warning(format!(
            "{}: account {name} is set aside until {until}",
            cause.phrase()
        )),
        Body::Corrected {
            message,
            attempt,
            max_attempts,
            ..
        } => warning(format!(
            "{message}: the model is told so ({attempt}/{max_attempts})"
        )),
        Body::Warning { message } => warning(message.clone()),
        Body::Unrecorded { message } => warning(format!(
            "what happens cannot be written down, and a restart would not know of it: {message}"
        )),
        Body::BilledTwice { usage, estimated } => warning(billed_twice(*usage, *estimated)),
        _ => None,
    }
}

fn billed_twice(usage: Usage, estimated: bool) -> String {
    let about = if estimated { "about " } else { "" };
    let (read, written) = (usage.total_input(), usage.output);
    format!(
        "what had to be asked for again cost {about}{read} tokens read and {written} written in addition"
    )
}

//! The reply to one call, independent of the dialect.

mod answer_kind;

pub use answer_kind::AnswerKind;
use outlast_dialect::ErrorForm;
use outlast_kernel::Timestamp;
use std::time::Duration;

/// The reply to one call.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The fault that caused it, as written in the script.
    pub fault: String,
    /// The action of the provider.
    pub action: Action,
    /// The kind of completion that is sent or damaged.
    pub answer_kind: AnswerKind,
}

/// The action of the provider.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// Sends the completion.
    Answer,
    /// Refuses with the status of this error.
    ProviderError(ProviderError),
    /// Refuses until a rate limit has passed.
    RateLimit {
        /// The remaining wait.
        wait: Duration,
        /// The end of the wait.
        until: Timestamp,
        /// The form in which the response states the end.
        form: HintForm,
    },
    /// Refuses until a plan's window ends.
    UsageLimit {
        /// The remaining time of the window.
        wait: Duration,
        /// The end of the window.
        until: Timestamp,
    },
    /// Refuses with an arbitrary status.
    Error {
        /// The status.
        status: u16,
        /// The provider's code, if not the usual one.
        code: Option<String>,
    },
    /// Refuses a request that exceeds the context window, and answers any other.
    Window {
        /// The maximum number of tokens that the model takes.
        limit: u64,
    },
    /// Refuses a request with a larger body, and answers any other.
    TooLarge {
        /// The maximum size of the body in bytes.
        limit: usize,
    },
    /// Responds with 408, because the request took too long to arrive.
    BodyTimeout,
    /// Refuses a request that ends with an assistant message, and answers any other.
    NoPrefill,
    /// Begins an error body, then sends nothing more.
    SlowError {
        /// The status.
        status: u16,
    },
    /// Sends an error body without end.
    EndlessError {
        /// The status.
        status: u16,
    },
    /// Responds with 401 and a message that repeats the key.
    EchoKey,
    /// Responds with 307, a redirect to another address.
    Redirect {
        /// The address.
        to: String,
    },
    /// Ends the connection before any response.
    Disconnect(Disconnect),
    /// Ends the body after exactly that many bytes.
    Cut {
        /// The number of bytes that are sent.
        bytes: usize,
        /// Whether the response ends as HTTP requires.
        clean: bool,
    },
    /// Resets the connection after a part of the completion.
    DropAfter {
        /// The number of pieces that are sent after the opening.
        pieces: usize,
    },
    /// Stops sending after a part of the completion.
    Stall {
        /// The number of pieces that are sent after the opening.
        pieces: usize,
    },
    /// Sends only keep-alives after a part of the completion.
    Pings {
        /// The number of pieces that are sent after the opening.
        pieces: usize,
        /// The time between two keep-alives.
        every: Duration,
    },
    /// Waits before each piece.
    Drip {
        /// The length of the wait.
        delay: Duration,
    },
    /// Waits before the headers.
    Hold {
        /// The length of the wait.
        delay: Duration,
    },
    /// Corrupts one frame of the completion.
    Malformed {
        /// The number of intact pieces that are sent after the opening.
        pieces: usize,
    },
    /// Sends meaningless bytes.
    Garbage,
    /// Sends a web page that mentions a status.
    Page {
        /// The status that the page mentions.
        status: u16,
        /// The status and content type with which the page is sent.
        form: PageForm,
    },
    /// Sends an error within a stream that began well.
    StreamError {
        /// The error.
        trouble: ProviderError,
        /// The number of pieces that are sent after the opening; `None` when not even the opening is.
        after: Option<usize>,
        /// The form of the error.
        form: ErrorForm,
    },
    /// Sends an error as the body of a response with status 200.
    JsonError(ProviderError),
    /// Leaves out the end of the completion.
    NoFinish,
    /// Sends the completion and leaves the connection open.
    Linger,
    /// Sends the completion compressed.
    Gzip {
        /// Whether it is compressed even if the request does not accept that.
        always: bool,
    },
    /// Sends one frame of gigabytes, compressed to almost nothing.
    Bomb,
}

/// The way in which a connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disconnect {
    /// The connection is reset.
    Reset,
    /// The connection is closed.
    Closed,
}

/// A keyword of a script, its value, and a short description.
pub(crate) type Keyword<T> = (&'static str, T, &'static str);

/// An error of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderError {
    /// Overloaded.
    Overloaded,
    /// Too many requests.
    RateLimited,
    /// The plan's window is used up.
    UsageLimit,
    /// An internal error.
    ServerError,
    /// The request is too long for the model.
    Overflow,
    /// The key is invalid.
    Auth,
    /// The account has no credit.
    Billing,
}

impl ProviderError {
    pub(crate) const KEYWORDS: [Keyword<Self>; 7] = [
        (
            "overloaded",
            Self::Overloaded,
            "the provider has too much to do",
        ),
        ("rate-limited", Self::RateLimited, "too many requests"),
        (
            "usage-limit",
            Self::UsageLimit,
            "the plan's window is used up",
        ),
        ("server-error", Self::ServerError, "something broke"),
        (
            "overflow",
            Self::Overflow,
            "the request is too long for the model",
        ),
        ("auth", Self::Auth, "the key is not valid"),
        ("billing", Self::Billing, "there is no money left"),
    ];
}

/// The form in which a rate limit states its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HintForm {
    /// `retry-after` in seconds.
    #[default]
    Seconds,
    /// `retry-after-ms`.
    Millis,
    /// `retry-after` as a date.
    Date,
    /// The dialect's header with the reset time of an empty bucket.
    Reset,
    /// A reset header in seconds or milliseconds since the Unix epoch.
    Epoch,
    /// A reset header as RFC 3339.
    Rfc3339,
    /// A field of the body.
    Body,
    /// The text of the message.
    Text,
    /// Not stated.
    Nowhere,
}

impl HintForm {
    pub(crate) const KEYWORDS: [Keyword<Self>; 9] = [
        ("seconds", Self::Seconds, "the header retry-after"),
        ("ms", Self::Millis, "the header retry-after-ms"),
        ("date", Self::Date, "the header retry-after as a date"),
        ("reset", Self::Reset, "the reset header of an empty bucket"),
        ("epoch", Self::Epoch, "a reset header as a Unix time"),
        ("rfc3339", Self::Rfc3339, "a reset header as RFC 3339"),
        ("body", Self::Body, "a field of the body"),
        ("text", Self::Text, "words of the message"),
        ("none", Self::Nowhere, "nowhere"),
    ];
}

/// The status and content type of a web page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageForm {
    /// Status 200, as an event stream.
    #[default]
    Stream,
    /// Status 200, as a web page.
    Html,
    /// The status that the page mentions, as a web page.
    Status,
}

impl PageForm {
    pub(crate) const KEYWORDS: [Keyword<Self>; 3] = [
        ("stream", Self::Stream, "inside a 200 event stream"),
        ("html", Self::Html, "as a 200 web page"),
        ("status", Self::Status, "as a web page with that status"),
    ];
}

pub(crate) const ERROR_FORM_KEYWORDS: [Keyword<ErrorForm>; 3] = [
    ("usual", ErrorForm::Standard, "as the dialect mostly has it"),
    ("event", ErrorForm::Event, "an event of its own"),
    (
        "end",
        ErrorForm::End,
        "a finish reason or a failed response",
    ),
];

//! What one call gets, in no dialect.

mod answer_kind;

pub use answer_kind::AnswerKind;
use outlast_dialect::ErrorForm;
use outlast_kernel::Timestamp;
use std::time::Duration;

/// What one call gets.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The fault that decided it, as the script has it.
    pub fault: String,
    /// What is done.
    pub act: Action,
    /// The answer that is given or damaged.
    pub of: AnswerKind,
}

/// What the provider does.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// Answers.
    Answer,
    /// Refuses, with the status that this trouble has.
    Refuse(ProviderError),
    /// Refuses until a rate limit has passed.
    RateLimit {
        /// What is left of the wait.
        wait: Duration,
        /// When it is over.
        until: Timestamp,
        /// How that is said.
        form: HintForm,
    },
    /// Refuses until a plan's window ends.
    UsageLimit {
        /// What is left of the window.
        wait: Duration,
        /// When it ends.
        until: Timestamp,
    },
    /// Refuses with any status.
    Error {
        /// The status.
        status: u16,
        /// The provider's code, if not the usual one.
        code: Option<String>,
    },
    /// Refuses a request of more tokens, and answers any other.
    Window {
        /// The most tokens that the model takes.
        limit: u64,
    },
    /// Refuses a request of more bytes, and answers any other.
    TooLarge {
        /// The most bytes that are taken.
        limit: usize,
    },
    /// 408, because the request took too long to come.
    BodyTimeout,
    /// Refuses a request that ends with the assistant's own words, and answers any other.
    NoPrefill,
    /// Begins an error body and falls silent.
    SlowError {
        /// The status.
        status: u16,
    },
    /// Sends an error body without end.
    EndlessError {
        /// The status.
        status: u16,
    },
    /// 401, and a message that repeats the key.
    EchoKey,
    /// 307 to another address.
    Redirect {
        /// The address.
        to: String,
    },
    /// Ends the connection before any response.
    HangUp(Disconnect),
    /// Ends the body after exactly that many bytes.
    Cut {
        /// The bytes that come through.
        bytes: usize,
        /// Whether the response ends as HTTP wants it.
        clean: bool,
    },
    /// Resets the connection after some of the answer.
    DropAfter {
        /// The pieces that come through after the opening.
        pieces: usize,
    },
    /// Falls silent after some of the answer.
    Stall {
        /// The pieces that come through after the opening.
        pieces: usize,
    },
    /// Sends only signs of life after some of the answer.
    Pings {
        /// The pieces that come through after the opening.
        pieces: usize,
        /// The time between two.
        every: Duration,
    },
    /// Waits before each piece.
    Drip {
        /// How long.
        delay: Duration,
    },
    /// Waits before the headers.
    Hold {
        /// How long.
        delay: Duration,
    },
    /// Breaks one frame of the answer.
    Malformed {
        /// The pieces that come through whole after the opening.
        pieces: usize,
    },
    /// Sends bytes that mean nothing.
    Garbage,
    /// Sends a web page that names a status.
    Page {
        /// The status that the page names.
        status: u16,
        /// What it comes as.
        form: PageForm,
    },
    /// Sends an error inside of an answer that began well.
    InBand {
        /// The error.
        trouble: ProviderError,
        /// The pieces that come through after the opening; `None` when not even that comes.
        after: Option<usize>,
        /// What it looks like.
        form: ErrorForm,
    },
    /// Sends an error as the body of a response that went well.
    JsonError(ProviderError),
    /// Leaves the end of the answer out.
    NoFinish,
    /// Answers and leaves the connection open.
    Linger,
    /// Answers compressed.
    Gzip {
        /// Even when that was not asked for.
        always: bool,
    },
    /// Sends one frame of gigabytes, compressed to almost nothing.
    Bomb,
}

/// How a connection ends that does not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disconnect {
    /// It is reset.
    Reset,
    /// It is closed.
    Closed,
}

/// A word of a script with its meaning, and what that is in a few words more.
pub(crate) type Keyword<T> = (&'static str, T, &'static str);

/// What a provider may be in trouble with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderError {
    /// It has too much to do.
    Overloaded,
    /// Too many requests.
    RateLimited,
    /// The plan's window is used up.
    UsageLimit,
    /// Something broke.
    ServerError,
    /// The request is too long for the model.
    Overflow,
    /// The key is not valid.
    Auth,
    /// There is no money left.
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

/// How a rate limit says when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HintForm {
    /// `retry-after` in seconds.
    #[default]
    Seconds,
    /// `retry-after-ms`.
    Millis,
    /// `retry-after` as a date.
    Date,
    /// The header that names the reset of an empty bucket, as this dialect's providers write it.
    Reset,
    /// A reset header in seconds or milliseconds since the Unix epoch.
    Epoch,
    /// A reset header as RFC 3339.
    Rfc3339,
    /// A field of the body.
    Body,
    /// Words of the message.
    Text,
    /// Nowhere.
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

/// What a web page comes as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageForm {
    /// The content of an event stream.
    #[default]
    Stream,
    /// A page, of a response that went well.
    Html,
    /// A page, with the status that it names.
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
    ("usual", ErrorForm::Usual, "as the dialect mostly has it"),
    ("event", ErrorForm::Event, "an event of its own"),
    (
        "end",
        ErrorForm::End,
        "a finish reason or a failed response",
    ),
];

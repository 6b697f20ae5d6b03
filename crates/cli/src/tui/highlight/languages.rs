//! Comments, strings and keywords of each known language.

/// The tokens of a language, which suffice to colour a line without parsing it.
pub(super) struct Language {
    pub(super) names: &'static [&'static str],
    pub(super) line_comments: &'static [&'static str],
    pub(super) block_comment: Option<(&'static str, &'static str)>,
    /// The kinds of quotes; of two with a common beginning the longer one comes first.
    pub(super) quotes: &'static [Quote],
    pub(super) keywords: &'static [&'static str],
    pub(super) traits: Traits,
}

/// Properties of some languages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Traits {
    Usual,
    /// Block comments can be nested.
    NestedComments,
    /// Comments and quotes must begin a word: `a#b` and `don't` contain none.
    AtWords,
    /// Keywords are case-insensitive.
    AnyCase,
    /// Lines are marked as added or removed.
    Diff,
}

pub(super) struct Quote {
    pub(super) open: &'static str,
    pub(super) close: &'static str,
    pub(super) kind: QuoteKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum QuoteKind {
    Line,
    Lines,
    /// Spans several lines; a backslash has no special meaning.
    Raw,
    /// Contains one character; otherwise the quote has another meaning.
    Character,
}

pub(super) fn named(name: &str) -> Option<&'static Language> {
    let known = |language: &&Language| language.names.iter().any(|n| n.eq_ignore_ascii_case(name));
    LANGUAGES.iter().find(known)
}

const fn quote(open: &'static str, close: &'static str, kind: QuoteKind) -> Quote {
    Quote { open, close, kind }
}

const DOUBLE: Quote = quote("\"", "\"", QuoteKind::Line);
const DOUBLE_LINES: Quote = quote("\"", "\"", QuoteKind::Lines);
const SINGLE: Quote = quote("'", "'", QuoteKind::Line);
const SINGLE_RAW: Quote = quote("'", "'", QuoteKind::Raw);
const CHARACTER: Quote = quote("'", "'", QuoteKind::Character);
const TICKS: Quote = quote("`", "`", QuoteKind::Lines);
const TICKS_RAW: Quote = quote("`", "`", QuoteKind::Raw);
const TRIPLE_DOUBLE: Quote = quote("\"\"\"", "\"\"\"", QuoteKind::Lines);
const TRIPLE_SINGLE: Quote = quote("'''", "'''", QuoteKind::Lines);

const SLASHES: &[&str] = &["//"];
const HASH: &[&str] = &["#"];
const STARS: Option<(&str, &str)> = Some(("/*", "*/"));

#[rustfmt::skip]
const LANGUAGES: &[Language] = &[
    Language { names: &["rust", "rs"], line_comments: SLASHES, block_comment: STARS, traits: Traits::NestedComments,
        quotes: &[quote("r##\"", "\"##", QuoteKind::Raw), quote("r#\"", "\"#", QuoteKind::Raw), quote("r\"", "\"", QuoteKind::Raw), DOUBLE_LINES, CHARACTER],
        keywords: &["as", "async", "await", "break", "const", "continue", "crate", "dyn", "else", "enum", "extern", "false", "fn", "for", "if", "impl", "in", "let",
            "loop", "match", "mod", "move", "mut", "pub", "ref", "return", "self", "Self", "static", "struct", "super", "trait", "true", "type", "unsafe", "use", "where", "while"] },
    Language { names: &["python", "py", "python3"], line_comments: HASH, block_comment: None, traits: Traits::Usual,
        quotes: &[TRIPLE_DOUBLE, TRIPLE_SINGLE, DOUBLE, SINGLE],
        keywords: &["and", "as", "assert", "async", "await", "break", "case", "class", "continue", "def", "del", "elif", "else", "except", "False", "finally", "for",
            "from", "global", "if", "import", "in", "is", "lambda", "match", "None", "nonlocal", "not", "or", "pass", "raise", "return", "True", "try", "while", "with", "yield"] },
    Language { names: &["javascript", "js", "jsx", "mjs", "typescript", "ts", "tsx"], line_comments: SLASHES, block_comment: STARS, traits: Traits::Usual,
        quotes: &[TICKS, DOUBLE, SINGLE],
        keywords: &["abstract", "as", "async", "await", "break", "case", "catch", "class", "const", "continue", "default", "delete", "do", "else", "enum", "export", "extends",
            "false", "finally", "for", "from", "function", "if", "implements", "import", "in", "instanceof", "interface", "let", "new", "null", "of", "private", "public",
            "readonly", "return", "static", "super", "switch", "this", "throw", "true", "try", "type", "typeof", "undefined", "var", "void", "while", "yield"] },
    Language { names: &["go", "golang"], line_comments: SLASHES, block_comment: STARS, traits: Traits::Usual,
        quotes: &[TICKS_RAW, DOUBLE, CHARACTER],
        keywords: &["break", "case", "chan", "const", "continue", "default", "defer", "else", "fallthrough", "false", "for", "func", "go", "goto", "if", "import",
            "interface", "map", "nil", "package", "range", "return", "select", "struct", "switch", "true", "type", "var"] },
    Language { names: &["c", "h", "cpp", "c++", "cc", "hpp", "java", "csharp", "cs", "c#", "kotlin", "kt", "swift"], line_comments: SLASHES, block_comment: STARS, traits: Traits::Usual,
        quotes: &[TRIPLE_DOUBLE, DOUBLE, CHARACTER],
        keywords: &["abstract", "auto", "bool", "boolean", "break", "byte", "case", "catch", "char", "class", "const", "constexpr", "continue", "default", "delete", "do",
            "double", "else", "enum", "extends", "extern", "false", "final", "finally", "float", "for", "fun", "func", "goto", "if", "implements", "import", "inline", "int",
            "interface", "let", "long", "namespace", "new", "null", "nullptr", "override", "package", "private", "protected", "public", "return", "short", "signed", "sizeof",
            "static", "struct", "super", "switch", "template", "this", "throw", "throws", "true", "try", "typedef", "typename", "union", "unsigned", "using", "val", "var",
            "virtual", "void", "volatile", "while"] },
    Language { names: &["shell", "sh", "bash", "zsh", "fish", "console"], line_comments: HASH, block_comment: None, traits: Traits::AtWords,
        quotes: &[DOUBLE_LINES, SINGLE_RAW],
        keywords: &["case", "do", "done", "elif", "else", "esac", "export", "fi", "for", "function", "if", "in", "local", "return", "set", "then", "until", "while"] },
    Language { names: &["json", "jsonl", "json5", "jsonc"], line_comments: SLASHES, block_comment: STARS, traits: Traits::Usual,
        quotes: &[DOUBLE], keywords: &["true", "false", "null"] },
    Language { names: &["yaml", "yml"], line_comments: HASH, block_comment: None, traits: Traits::AtWords,
        quotes: &[DOUBLE, SINGLE], keywords: &["true", "false", "null", "yes", "no", "on", "off"] },
    Language { names: &["toml", "ini"], line_comments: HASH, block_comment: None, traits: Traits::Usual,
        quotes: &[TRIPLE_DOUBLE, TRIPLE_SINGLE, DOUBLE, SINGLE], keywords: &["true", "false"] },
    Language { names: &["sql", "postgresql", "mysql", "sqlite"], line_comments: &["--"], block_comment: STARS, traits: Traits::AnyCase,
        quotes: &[SINGLE_RAW, DOUBLE],
        keywords: &["add", "all", "alter", "and", "as", "asc", "begin", "between", "by", "case", "commit", "constraint", "create", "cross", "default", "delete", "desc", "distinct",
            "drop", "else", "end", "exists", "foreign", "from", "full", "group", "having", "in", "index", "inner", "insert", "into", "is", "join", "key", "left", "like", "limit",
            "not", "null", "offset", "on", "or", "order", "outer", "primary", "references", "returning", "right", "rollback", "select", "set", "table", "then", "union", "unique",
            "update", "values", "view", "when", "where", "with"] },
    Language { names: &["diff", "patch"], line_comments: &[], block_comment: None, traits: Traits::Diff, quotes: &[], keywords: &[] },
];

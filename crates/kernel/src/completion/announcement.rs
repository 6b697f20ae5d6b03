//! Detects completions that announce the model's next action and end before it.
//!
//! Conservative: the last sentence must be in the first person, about an action that tools do, and no offer, condition
//! or promise for later. English only: in other languages no announcement is detected.

/// The longest last sentence that counts without a colon or an ellipsis at its end, and with one, in characters.
const MAX_SENTENCE_CHARS: usize = 120;
const MAX_OPEN_SENTENCE_CHARS: usize = 300;

/// The beginnings of an announcement.
#[rustfmt::skip]
const BEGINNINGS: [&str; 9] = [
    "i'll ", "i will ", "let me ", "i'm going to ", "i am going to ", "i'm about to ", "i'm now going to ",
    "i am now going to ", "allow me to ",
];

/// Words that may stand before the beginning.
#[rustfmt::skip]
const LEAD_INS: [&str; 24] = [
    "now", "next", "first", "then", "okay", "ok", "so", "alright", "great", "good", "perfect", "and", "but",
    "finally", "sure", "right", "thanks", "understood", "got it", "great question", "to start", "to begin",
    "with that", "also",
];

/// The beginnings of a clause that gives the reason for the announced action.
#[rustfmt::skip]
const REASONS: [&str; 10] = [
    "to ", "before ", "for ", "with ", "given ", "since ", "based on ", "that ", "as ", "because ",
];

/// Words that may stand before the action.
#[rustfmt::skip]
const ADVERBS: [&str; 13] = [
    "now", "first", "then", "also", "just", "quickly", "next", "carefully", "again", "actually", "go ahead and",
    "try to", "simply",
];

/// Verbs for actions that tools do.
#[rustfmt::skip]
const ACTIONS: [&str; 88] = [
    "add", "address", "adjust", "analyse", "analyze", "apply", "begin", "build", "call", "change", "check", "clean",
    "commit", "compare", "compile", "complete", "continue", "convert", "correct", "count", "create", "debug",
    "delete", "determine", "dig", "dive", "do", "double-check", "download", "edit", "examine", "execute", "explore",
    "extract", "fetch", "figure", "find", "fix", "gather", "generate", "get", "go", "grep", "identify", "implement",
    "insert", "inspect", "install", "investigate", "list", "load", "locate", "look", "make", "modify", "move", "open",
    "patch", "proceed", "pull", "query", "re-run", "read", "refactor", "remove", "rename", "replace", "reproduce",
    "rerun", "retry", "review", "rewrite", "run", "scan", "search", "see", "set", "start", "take", "test", "trace",
    "try", "update", "use", "verify", "view", "work", "write",
];

/// Phrases that mark an offer, a condition or a promise for later. Each is looked for as whole words.
#[rustfmt::skip]
const CONDITIONAL_PHRASES: [&str; 40] = [
    "if", "once", "when", "whenever", "unless", "until", "after you", "let me know", "should you", "would you",
    "shall i", "happy to", "glad to", "next time", "in the future", "in future", "from now on", "going forward",
    "tomorrow", "later", "as needed", "wait", "your approval", "your confirmation", "your permission",
    "your go-ahead", "your answer", "your reply", "your feedback", "for you to", "as soon as", "on request", "upon",
    "remember", "in mind", "however you", "whichever", "or not", "keep", "care of the rest",
];

/// Returns whether the text ends with an announcement.
pub(super) fn ends_text(text: &str) -> bool {
    let text = text.trim_end();
    let paragraph = text.rsplit("\n\n").next().unwrap_or(text);
    let line = paragraph.lines().next_back().unwrap_or_default();
    if paragraph.contains('?') || !is_prose(line) {
        return false;
    }
    let sentence = last_sentence(line).to_lowercase().replace('’', "'");
    let sentence = normalize_if_clauses(sentence.trim_matches(['*', '_', ' ']));
    let is_open = sentence.ends_with([':', '…']) || sentence.ends_with("...");
    let longest = if is_open {
        MAX_OPEN_SENTENCE_CHARS
    } else {
        MAX_SENTENCE_CHARS
    };
    // A model that says "let's" and has more to say means itself.
    let sentence = match sentence.strip_prefix("let's ").filter(|_| is_open) {
        Some(rest) => format!("let me {rest}"),
        None => sentence,
    };
    sentence.chars().count() <= longest && !is_conditional(&sentence) && is_announcement(&sentence)
}

/// Neutralises `if` after verbs of checking: to see *if* something is so is no condition.
fn normalize_if_clauses(sentence: &str) -> String {
    let mut sentence = sentence.to_owned();
    for verb in ["see", "check", "verify", "determine", "test", "out"] {
        sentence = sentence.replace(&format!("{verb} if "), &format!("{verb} whether "));
        sentence = sentence.replace(&format!("{verb} when "), &format!("{verb} whether "));
    }
    sentence
}

/// Returns whether a line is neither code nor an item of a list, a table, a heading or a quotation.
fn is_prose(line: &str) -> bool {
    let line = line.trim_start();
    let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_item = digits.len() < line.len() && digits.starts_with(['.', ')']);
    let is_bullet = ["- ", "* ", "+ ", "• "]
        .iter()
        .any(|mark| line.starts_with(mark));
    !is_item && !is_bullet && !line.starts_with(['`', '~', '|', '#', '>', '<', '{', '[', '"', '“'])
}

fn last_sentence(line: &str) -> &str {
    let body = line.trim_end_matches(['.', '!', '…', ':', '*', '_', ' ']);
    let is_end = |(at, c): &(usize, char)| {
        let after = &body[at + c.len_utf8()..];
        matches!(c, '.' | '!' | ':' | ';' | '…' | '—') && after.starts_with([' ', '*'])
    };
    let start = body.char_indices().rfind(is_end);
    let start = start.map_or(0, |(at, c)| at + c.len_utf8());
    line[start..].trim_start_matches(['*', '_', ' '])
}

/// Returns whether a sentence in lower case is in the first person and about an action.
fn is_announcement(sentence: &str) -> bool {
    let rest = without_lead_ins(sentence);
    let own = |text: &str| {
        BEGINNINGS
            .iter()
            .find_map(|begin| text.strip_prefix(begin).map(str::to_owned))
    };
    let after_reason = || {
        let (reason, rest) = rest.split_once(", ")?;
        let is_reason = REASONS.iter().any(|word| reason.starts_with(word));
        own(rest).filter(|_| is_reason)
    };
    own(rest)
        .or_else(after_reason)
        .is_some_and(|action| starts_with_action(&action))
}

fn without_lead_ins(sentence: &str) -> &str {
    let mut rest = sentence;
    loop {
        let shorter = LEAD_INS.iter().find_map(|word| rest.strip_prefix(word));
        let shorter = shorter.filter(|rest| rest.starts_with([',', ' ', '!', '.']));
        match shorter {
            Some(shorter) => rest = shorter.trim_start_matches([',', ' ', '!', '.']),
            None => return rest,
        }
    }
}

fn starts_with_action(text: &str) -> bool {
    let mut rest = text;
    while let Some(shorter) = ADVERBS.iter().find_map(|word| rest.strip_prefix(word)) {
        let Some(shorter) = shorter.strip_prefix(' ') else {
            break;
        };
        rest = shorter;
    }
    let is_letter = |c: char| c.is_alphabetic() || c == '-';
    let word = rest.split(|c| !is_letter(c)).next().unwrap_or_default();
    ACTIONS.contains(&word)
}

fn is_conditional(sentence: &str) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let stands = |phrase: &&str| {
        sentence.match_indices(*phrase).any(|(at, _)| {
            let before = sentence[..at].chars().next_back();
            let after = sentence[at + phrase.len()..].chars().next();
            !is_letter(before) && !is_letter(after)
        })
    };
    CONDITIONAL_PHRASES.iter().any(stands)
}

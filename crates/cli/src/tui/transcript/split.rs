//! Splits streamed text, so that the part before the split is laid out only once.
//!
//! Invariants: each byte is read once, however small the incoming pieces are; a part that is still growing has at most
//! [`MAX_PART_BYTES`] bytes and a piece; a part that begins within a code block knows the fence line.

/// Size in bytes from which a part is split where that is invisible: between paragraphs, or between lines of code.
pub(in crate::tui::transcript) const SOFT_PART_LIMIT: usize = 4 << 10;
/// Size in bytes from which a part is split at a line end, or else anywhere.
pub(in crate::tui::transcript) const MAX_PART_BYTES: usize = 16 << 10;

/// The structure of a text that matters for splitting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tui::transcript) enum Kind {
    Markdown,
    /// Independent lines.
    Lines,
}

/// The state of a scan of a part.
#[derive(Clone, Debug, Default)]
pub(in crate::tui::transcript) struct Scan {
    /// Complete lines were read up to `seen`, and no line end was found from there up to `searched`.
    seen: usize,
    searched: usize,
    is_after_blank: bool,
    fence: Option<Fence>,
    /// The start of the last paragraph outside a list.
    paragraph: Option<usize>,
}

/// An open code block.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fence {
    mark: char,
    length: usize,
    opening: String,
}

/// The position of a split, and how the next part continues.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::tui::transcript) struct SplitPoint {
    pub(in crate::tui::transcript) at: usize,
    /// The fence line of the code block at this position.
    pub(in crate::tui::transcript) opening: Option<String>,
    /// Whether there is a blank line.
    pub(in crate::tui::transcript) is_gap: bool,
}

impl Scan {
    /// Creates the state of a part that begins within a code block.
    pub(in crate::tui::transcript) fn within(opening: Option<&str>) -> Self {
        Self {
            fence: opening.and_then(Fence::opened_by),
            ..Self::default()
        }
    }

    /// Returns the fence line of the code block that is open at the end of the part.
    pub(in crate::tui::transcript) fn open_code(&self, text: &str) -> Option<String> {
        let mut scan = self.clone();
        scan.scan_lines(text);
        scan.fence.map(|fence| fence.opening)
    }

    /// Reads the new lines of the part, and returns where to split it, if at all.
    pub(in crate::tui::transcript) fn cut(&mut self, text: &str, kind: Kind) -> Option<SplitPoint> {
        self.scan_lines(text);
        if text.len() < SOFT_PART_LIMIT {
            return None;
        }
        let cut = match (kind, self.paragraph) {
            (Kind::Markdown, Some(at)) => SplitPoint {
                at,
                opening: None,
                is_gap: true,
            },
            _ => self.cut_between_lines(text, kind)?,
        };
        self.seen = self.seen.saturating_sub(cut.at);
        self.searched = self.searched.saturating_sub(cut.at);
        self.paragraph = None;
        Some(cut)
    }

    fn cut_between_lines(&self, text: &str, kind: Kind) -> Option<SplitPoint> {
        let fence = self.fence.as_ref().filter(|_| kind == Kind::Markdown);
        let cut = |at: usize| SplitPoint {
            at,
            opening: fence.map(|fence| fence.opening.clone()),
            is_gap: fence.is_none() && kind == Kind::Markdown && text[..at].ends_with("\n\n"),
        };
        let is_free = fence.is_some() || kind == Kind::Lines;
        let has_line = self.seen > 0 && self.seen < text.len();
        match (has_line, text.len() >= MAX_PART_BYTES) {
            (true, is_long) if is_long || is_free => Some(cut(self.seen)),
            (false, true) => split_within_line(text).map(cut),
            _ => None,
        }
    }

    fn scan_lines(&mut self, text: &str) {
        let new = text.get(self.searched..).unwrap_or_default();
        let end = new.rfind('\n').map(|at| self.searched + at + 1);
        self.searched = text.len();
        let lines = end.and_then(|end| text.get(self.seen..end));
        for line in lines.unwrap_or_default().split_inclusive('\n') {
            self.scan_line(line);
            self.seen += line.len();
        }
    }

    fn scan_line(&mut self, line: &str) {
        match &self.fence {
            Some(fence) if fence.is_closed_by(line) => self.fence = None,
            Some(_) => {}
            None => {
                if self.is_after_blank && self.seen > 0 && starts_new_block(line) {
                    self.paragraph = Some(self.seen);
                }
                self.fence = Fence::opened_by(line);
            }
        }
        self.is_after_blank = line.trim().is_empty();
    }
}

impl Fence {
    fn opened_by(line: &str) -> Option<Self> {
        let opening = line.trim();
        let mark = opening.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let info = opening.trim_start_matches(mark);
        let length = opening.len() - info.len();
        // Inline code begins and ends on its line.
        let is_one = length >= 3 && !(mark == '`' && info.contains('`'));
        is_one.then(|| Self {
            mark,
            length,
            opening: opening.to_owned(),
        })
    }

    fn is_closed_by(&self, line: &str) -> bool {
        let line = line.trim();
        line.len() >= self.length && line.chars().all(|c| c == self.mark)
    }
}

/// Whether a line after a blank one cannot belong to a list before it.
fn starts_new_block(line: &str) -> bool {
    line.starts_with(|c: char| c.is_alphabetic() || matches!(c, '#' | '`' | '~'))
        || line.starts_with("**")
}

/// Returns the last position between words, or otherwise between two characters.
fn split_within_line(text: &str) -> Option<usize> {
    let blank = text.rfind(' ').map(|at| at + 1);
    let last = text.char_indices().next_back().map(|(at, _)| at);
    blank.filter(|at| *at >= SOFT_PART_LIMIT).or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the parts of a text that arrives in pieces of that many characters, each with its fence line.
    fn parts(text: &str, piece: usize, kind: Kind) -> Vec<(Option<String>, String)> {
        let (mut parts, mut scan) = (Vec::new(), Scan::default());
        let mut last = (None, String::new());
        let all: Vec<char> = text.chars().collect();
        for piece in all.chunks(piece) {
            last.1.extend(piece);
            if let Some(cut) = scan.cut(&last.1, kind) {
                let rest = last.1.split_off(cut.at);
                parts.push(std::mem::replace(&mut last, (cut.opening, rest)));
            }
        }
        parts.push(last);
        parts
    }

    fn joined(parts: &[(Option<String>, String)]) -> String {
        parts.iter().map(|(_, part)| part.as_str()).collect()
    }

    #[test]
    fn parts_lose_no_text_and_stay_bounded() {
        let texts = [
            "A sentence of a paragraph.\n\n".repeat(3000),
            format!("```rust\n{}```\n", "let a = 1;\n".repeat(3000)),
            "- one item of a list\n".repeat(3000),
            "word ".repeat(8000),
            "ä".repeat(40_000),
            format!("```\n{}", "x".repeat(60_000)),
            "\n".repeat(50_000),
        ];
        for text in texts {
            for (piece, kind) in [
                (7, Kind::Markdown),
                (1000, Kind::Markdown),
                (7, Kind::Lines),
            ] {
                let parts = parts(&text, piece, kind);
                assert!(joined(&parts) == text, "{:?}", &text[..20]);
                let longest = parts.iter().map(|(_, part)| part.len()).max().unwrap();
                assert!(
                    longest <= MAX_PART_BYTES + 2 * piece,
                    "{longest} of {:?}",
                    &text[..20]
                );
            }
        }
    }

    #[test]
    fn code_splits_between_lines_and_parts_keep_opening_fence() {
        let text = format!(
            "Look:\n\n~~~~rust\n{}~~~~\nEnd",
            "~~~ a line\n".repeat(1000)
        );
        let parts = parts(&text, 5, Kind::Markdown);
        assert!(parts.len() > 2);
        for (number, (opening, part)) in parts.iter().enumerate() {
            let expected = (number > 1).then_some("~~~~rust");
            assert_eq!(opening.as_deref(), expected, "part {number}");
            assert!(number == 0 || part.starts_with("~~~"), "{:?}", &part[..20]);
        }
    }

    #[test]
    fn fence_closes_only_with_same_kind_and_enough_length() {
        let table = [
            ("```", "```\n", true),
            ("```", "~~~\n", false),
            ("````", "```\n", false),
            ("```", "`````\n", true),
            ("```", "``` more\n", false),
        ];
        for (opening, line, closes) in table {
            let fence = Fence::opened_by(opening).unwrap();
            assert_eq!(fence.is_closed_by(line), closes, "{opening} {line}");
        }
        assert_eq!(Fence::opened_by("```a``` is code\n"), None);
        assert_eq!(Fence::opened_by("`` two"), None);
    }

    #[test]
    fn list_below_size_limit_is_not_split() {
        let text = "1. an item\n\n   its second paragraph\n\n".repeat(500);
        assert_eq!(
            parts(&text[..MAX_PART_BYTES - 100], 9, Kind::Markdown).len(),
            1
        );
    }
}

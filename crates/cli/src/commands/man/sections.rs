//! Parses the text below the options of a help into sections of a manual.
//!
//! A section begins at a line that is not indented and ends with a colon. Indented lines below it are entries, a term and
//! its meaning with two blanks between them; indented lines of another form are shown unchanged. Other lines are text.

use clap_mangen::roff::{Roff, bold, roman};

/// The title of the section for text without a heading.
const NOTES: &str = "NOTES";
const EXAMPLES: &str = "EXAMPLES";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) title: String,
    lines: Vec<String>,
}

/// Parses a text into sections.
pub(super) fn parse(text: &str) -> Vec<Section> {
    let mut all: Vec<Section> = Vec::new();
    for line in text.lines() {
        if let Some(title) = title(line) {
            let lines = Vec::new();
            all.push(Section { title, lines });
            continue;
        }
        // A paragraph after a section belongs to none.
        let is_text = !line.is_empty() && !line.starts_with(' ');
        let is_notes = |section: &Section| section.title == NOTES;
        if is_text && !all.last().is_some_and(is_notes) {
            let (title, lines) = (NOTES.to_owned(), Vec::new());
            all.push(Section { title, lines });
        }
        if let Some(section) = all.last_mut() {
            section.lines.push(line.to_owned());
        }
    }
    all
}

fn title(line: &str) -> Option<String> {
    let name = line.strip_suffix(':')?;
    let is_title = !name.starts_with(' ') && name.len() <= 60;
    is_title.then(|| match name {
        "Exit codes" => "EXIT STATUS".to_owned(),
        name => name.to_uppercase(),
    })
}

impl Section {
    pub(super) fn is_examples(&self) -> bool {
        self.title == EXAMPLES
    }

    pub(super) fn render(&self, roff: &mut Roff) {
        roff.control("SH", [self.title.as_str()]);
        let entries = match self.is_examples() {
            true => None,
            false => entries(&self.lines),
        };
        match entries {
            Some(entries) => {
                for (term, meaning) in entries {
                    roff.control("TP", []);
                    roff.text([bold(term)]);
                    roff.text([roman(meaning)]);
                }
            }
            None => render_verbatim(&self.lines, roff),
        }
    }
}

/// Parses the lines as terms and their meanings; `None` if they are something else.
fn entries(lines: &[String]) -> Option<Vec<(String, String)>> {
    let mut entries: Vec<(String, String)> = Vec::new();
    for line in lines.iter().filter(|line| !line.is_empty()) {
        let inner = line.strip_prefix("  ")?;
        if inner.starts_with(' ') {
            let (_, meaning) = entries.last_mut()?;
            *meaning = format!("{meaning} {}", inner.trim()).trim().to_owned();
            continue;
        }
        let (term, meaning) = inner.split_once("  ").unwrap_or((inner, ""));
        entries.push((term.to_owned(), meaning.trim().to_owned()));
    }
    (!entries.is_empty()).then_some(entries)
}

/// Renders the lines: indented ones keep their form, the others are text.
fn render_verbatim(lines: &[String], roff: &mut Roff) {
    let mut is_kept = false;
    let ends = lines.len()
        - lines
            .iter()
            .rev()
            .take_while(|line| line.is_empty())
            .count();
    for line in &lines[..ends] {
        let keep = line.starts_with(' ');
        match (is_kept, keep) {
            (false, true) => drop(roff.control("nf", [])),
            (true, false) => drop(roff.control("fi", [])),
            _ => {}
        }
        is_kept = keep;
        match line.is_empty() {
            true => roff.control("PP", []),
            false => roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]),
        };
    }
    if is_kept {
        roff.control("fi", []);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_help_becomes_the_sections_of_a_manual() {
        let text =
            "It is so.\n\nExit codes:\n  0  well\n  1  not\n     well\n\nExamples:\n  one  # two\n";
        let all = parse(text);
        let titles: Vec<&str> = all.iter().map(|section| section.title.as_str()).collect();
        assert_eq!(titles, ["NOTES", "EXIT STATUS", "EXAMPLES"]);
        let mut roff = Roff::new();
        for section in &all {
            section.render(&mut roff);
        }
        insta::assert_snapshot!(roff.to_roff(), @r#"
        .SH NOTES
        It is so.
        .SH "EXIT STATUS"
        .TP
        \fB0\fR
        well
        .TP
        \fB1\fR
        not well
        .SH EXAMPLES
        .nf
        one  # two
        .fi
        "#);
    }
}

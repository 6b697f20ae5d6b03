//! Renders a report as an HTML page that loads nothing and runs no code.

use super::drawing::Drawing;
use super::failures::FailedAttempt;
use super::summary::{ArtifactRow, StepRow, Summary};
use outlast_session::transcript::html::{PAGE_END, Page};

/// Styles of the tables and the picture, in addition to those of every page.
const STYLE: &str = "<style>\n\
main { max-width: 72rem; }\n\
.picture { overflow-x: auto; }\n\
.picture svg { border: 1px solid var(--line); border-radius: 4px; max-width: 100%; height: auto; }\n\
table { border-collapse: collapse; font-size: .9rem; width: 100%; }\n\
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left; vertical-align: top; overflow-wrap: anywhere; }\n\
td.number, th.number { text-align: right; white-space: nowrap; }\n\
td.hash { font-family: ui-monospace, monospace; font-size: .75rem; }\n\
</style>\n";

/// Renders the whole page.
pub(super) fn document(account: &Summary, picture: Drawing) -> String {
    let mut page = Page::begin(&account.title);
    page.markup(STYLE)
        .markup("<p>")
        .text(&account.verdict)
        .markup("</p>\n<dl>\n");
    for (name, value) in &account.facts {
        page.markup("<dt>")
            .markup(name)
            .markup("</dt><dd>")
            .text(value)
            .markup("</dd>\n");
    }
    page.markup("</dl>\n<div class=\"picture\">\n")
        .trusted_svg(&picture.finish())
        .markup("</div>\n");
    steps(&mut page, &account.rows);
    if !account.failures.is_empty() {
        page.markup("<h2>What failed, and what was done about it</h2>\n");
    }
    for one in &account.failures {
        failed_attempt(&mut page, one);
    }
    if !account.notes.is_empty() {
        page.markup("<h2>Notes</h2>\n");
        list(&mut page, &account.notes);
    }
    if !account.artifacts.is_empty() {
        artifacts(&mut page, &account.artifacts);
    }
    for said in &account.left_out {
        page.markup("<p>").text(said).markup("</p>\n");
    }
    page.markup(PAGE_END);
    page.finish()
}

fn steps(page: &mut Page, rows: &[StepRow]) {
    page.markup("<h2>Steps</h2>\n<table>\n<tr><th>step</th><th>outcome</th>");
    for name in ["visits", "attempts", "worked", "waited", "tokens", "cost"] {
        page.markup("<th class=\"number\">")
            .markup(name)
            .markup("</th>");
    }
    page.markup("</tr>\n");
    for row in rows {
        page.markup("<tr><td>")
            .text(&row.step)
            .markup("</td><td>")
            .text(&row.outcome)
            .markup("</td>");
        let (visits, attempts) = (row.visits.to_string(), row.attempts.to_string());
        let tokens = row.tokens.to_string();
        for value in [
            &visits,
            &attempts,
            &row.worked,
            &row.waited,
            &tokens,
            &row.cost,
        ] {
            page.markup("<td class=\"number\">")
                .text(value)
                .markup("</td>");
        }
        page.markup("</tr>\n");
    }
    page.markup("</table>\n");
}

fn failed_attempt(page: &mut Page, trouble: &FailedAttempt) {
    page.markup("<div class=\"failed\">\n<h3>")
        .text(&trouble.title)
        .markup(" <time>")
        .text(&trouble.time)
        .markup("</time></h3>\n");
    if !trouble.message.trim().is_empty() {
        page.verbatim(&trouble.message);
    }
    for (name, lines) in trouble.lists() {
        page.markup("<p>").markup(name).markup(":</p>\n");
        list(page, lines);
    }
    if !trouble.remedy.is_empty() {
        page.markup("<p>").text(&trouble.remedy).markup("</p>\n");
    }
    page.markup("</div>\n");
}

fn list(page: &mut Page, lines: &[String]) {
    page.markup("<ul>\n");
    for line in lines {
        page.markup("<li>").text(line).markup("</li>\n");
    }
    page.markup("</ul>\n");
}

fn artifacts(page: &mut Page, artifacts: &[ArtifactRow]) {
    page.markup(
        "<h2>Artifacts</h2>\n<table>\n<tr><th>step</th><th>name</th><th class=\"number\">bytes</th><th>SHA-256</th></tr>\n",
    );
    for made in artifacts {
        page.markup("<tr><td>")
            .text(&made.step)
            .markup("</td><td>")
            .text(&made.name)
            .markup("</td><td class=\"number\">")
            .text(&made.size.to_string())
            .markup("</td><td class=\"hash\">")
            .text(&made.hash)
            .markup("</td></tr>\n");
    }
    page.markup("</table>\n");
}

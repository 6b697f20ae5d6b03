//! Renders a report as an HTML page that loads nothing and runs no code.

use super::failures::FailedAttempt;
use super::summary::{ArtifactRow, StepRow, Summary};
use super::timeline::{Bar, LEGEND, Mark, Timeline};
use outlast_session::transcript::html::{PAGE_END, Page};

const STYLE: &str = concat!("<style>\n", include_str!("page.css"), "</style>\n");

/// Renders the whole page.
pub(super) fn document(account: &Summary, timeline: &Timeline) -> String {
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
    page.markup("</dl>\n");
    draw(&mut page, timeline);
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

fn draw(page: &mut Page, timeline: &Timeline) {
    page.markup("<figure class=\"timeline\" aria-label=\"Timeline\">\n<div class=\"rows\">\n<div class=\"back\">\n");
    for gap in &timeline.gaps {
        bar(page, gap);
    }
    for mark in &timeline.times {
        let class = if mark.left < 100.0 {
            "time"
        } else {
            "time last"
        };
        place(page, class, mark)
            .markup("><span>")
            .text(&mark.text)
            .markup("</span></span>\n");
    }
    for mark in &timeline.resumes {
        let title = place(page, "resume", mark)
            .markup(" title=\"")
            .text(&mark.text);
        title.markup("\"></span>\n");
    }
    page.markup("</div>\n");
    for row in &timeline.rows {
        page.markup("<div class=\"row\"><b dir=\"auto\">")
            .text(&row.step)
            .markup("</b><div>");
        for one in &row.bars {
            bar(page, one);
        }
        page.text(&row.note).markup("</div></div>\n");
    }
    page.markup("</div>\n<figcaption>");
    for look in LEGEND {
        page.markup("<span><i class=\"")
            .markup(look.class)
            .markup("\"></i> ")
            .markup(look.legend)
            .markup("</span>\n");
    }
    page.markup("<span><i class=\"resume\"></i> taken up again</span>\n")
        .text(&timeline.left_out)
        .markup("</figcaption>\n</figure>\n");
}

/// Begins a `span` at its place.
fn place<'a>(page: &'a mut Page, class: &'static str, mark: &Mark) -> &'a mut Page {
    page.markup("<span class=\"")
        .markup(class)
        .markup("\" style=\"left:")
        .text(&format!("{:.2}%", mark.left))
        .markup("\"")
}

fn bar(page: &mut Page, bar: &Bar) {
    page.markup("<i class=\"")
        .markup(bar.look.class)
        .markup("\" style=\"left:")
        .text(&format!("{:.2}%;width:{:.2}%", bar.left, bar.width))
        .markup("\" title=\"")
        .text(&bar.title)
        .markup("\">");
    if !bar.label.is_empty() {
        page.markup("<span>").text(&bar.label).markup("</span>");
    }
    page.markup("</i>");
}

fn steps(page: &mut Page, rows: &[StepRow]) {
    page.markup("<h2>Steps</h2>\n<div class=\"wide\">\n<table>\n<tr><th>step</th><th>outcome</th>");
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
    page.markup("</table>\n</div>\n");
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

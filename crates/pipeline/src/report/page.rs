//! Renders a report as an HTML page that loads nothing and runs no code.

use super::failures::FailedAttempt;
use super::summary::{ArtifactRow, StepRow, Summary};
use super::timeline::{Bar, LEGEND, Mark, Timeline};
use outlast_session::transcript::html::{PAGE_END, Page};

const STYLE: &str = concat!("<style>\n", include_str!("page.css"), "</style>\n");
/// The beginnings of cells with numbers.
const NUMBER: &str = "<td class=\"number\">";
const NUMBER_HEAD: &str = "<th class=\"number\">";

/// Renders the whole page.
pub(super) fn document(account: &Summary, timeline: &Timeline) -> String {
    let mut page = Page::begin(&account.title);
    page.markup(STYLE)
        .wrapped("<p>", &account.verdict, "</p>\n")
        .facts(&account.facts);
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
        page.wrapped("<p>", said, "</p>\n");
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
        place(page, class, mark).wrapped("><span>", &mark.text, "</span></span>\n");
    }
    for mark in &timeline.resumes {
        place(page, "resume", mark).wrapped(" title=\"", &mark.text, "\"></span>\n");
    }
    page.markup("</div>\n");
    for row in &timeline.rows {
        page.wrapped(
            "<div class=\"row\"><b dir=\"auto\">",
            &row.step,
            "</b><div>",
        );
        for one in &row.bars {
            bar(page, one);
        }
        page.text(&row.note).markup("</div></div>\n");
    }
    page.markup("</div>\n<figcaption>");
    for look in LEGEND {
        page.wrapped("<span><i class=\"", look.class, "\"></i> ")
            .wrapped("", look.legend, "</span>\n");
    }
    page.markup("<span><i class=\"resume\"></i> taken up again</span>\n")
        .text(&timeline.left_out)
        .markup("</figcaption>\n</figure>\n");
}

/// Begins a `span` at its place.
fn place<'a>(page: &'a mut Page, class: &'static str, mark: &Mark) -> &'a mut Page {
    let left = format!("{:.2}%", mark.left);
    page.wrapped("<span class=\"", class, "\" ")
        .wrapped("style=\"left:", &left, "\"")
}

fn bar(page: &mut Page, bar: &Bar) {
    let place = format!("left:{:.2}%;width:{:.2}%", bar.left, bar.width);
    page.wrapped("<i class=\"", bar.look.class, "\" ")
        .wrapped("style=\"", &place, "\" ")
        .wrapped("title=\"", &bar.title, "\">");
    if !bar.label.is_empty() {
        page.wrapped("<span>", &bar.label, "</span>");
    }
    page.markup("</i>");
}

fn steps(page: &mut Page, rows: &[StepRow]) {
    page.markup("<h2>Steps</h2>\n<div class=\"wide\">\n<table>\n<tr><th>step</th><th>outcome</th>");
    for name in ["visits", "attempts", "worked", "waited", "tokens", "cost"] {
        page.wrapped(NUMBER_HEAD, name, "</th>");
    }
    page.markup("</tr>\n");
    for row in rows {
        page.wrapped("<tr><td>", &row.step, "</td>")
            .wrapped("<td>", &row.outcome, "</td>");
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
            page.wrapped(NUMBER, value, "</td>");
        }
        page.markup("</tr>\n");
    }
    page.markup("</table>\n</div>\n");
}

fn failed_attempt(page: &mut Page, trouble: &FailedAttempt) {
    page.wrapped("<div class=\"failed\">\n<h3>", &trouble.title, " ")
        .wrapped("<time>", &trouble.time, "</time></h3>\n");
    if !trouble.message.trim().is_empty() {
        page.verbatim(&trouble.message);
    }
    for (name, lines) in trouble.lists() {
        page.wrapped("<p>", name, ":</p>\n");
        list(page, lines);
    }
    if !trouble.remedy.is_empty() {
        page.wrapped("<p>", &trouble.remedy, "</p>\n");
    }
    page.markup("</div>\n");
}

fn list(page: &mut Page, lines: &[String]) {
    page.markup("<ul>\n");
    for line in lines {
        page.wrapped("<li>", line, "</li>\n");
    }
    page.markup("</ul>\n");
}

fn artifacts(page: &mut Page, artifacts: &[ArtifactRow]) {
    page.markup(
        "<h2>Artifacts</h2>\n<table>\n<tr><th>step</th><th>name</th><th class=\"number\">bytes</th><th>SHA-256</th></tr>\n",
    );
    for made in artifacts {
        page.wrapped("<tr><td>", &made.step, "</td>")
            .wrapped("<td>", &made.name, "</td>")
            .wrapped(NUMBER, &made.size.to_string(), "</td>")
            .wrapped("<td class=\"hash\">", &made.hash, "</td></tr>\n");
    }
    page.markup("</table>\n");
}

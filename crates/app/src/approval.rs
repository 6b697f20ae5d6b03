//! Asking the person at the terminal whether a tool may run.

use outlast_agent::tools::{Answer, Approve, Question};
use outlast_engine::BoxFuture;
use outlast_kernel::text;
use std::io::{BufRead, IsTerminal, Write};

/// The person who sits there.
pub(crate) struct Terminal;

impl Terminal {
    /// Whether somebody sits there who can read a question and answer it.
    pub(crate) fn is_attended() -> bool {
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }
}

impl Approve for Terminal {
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Answer> {
        let text = words(question);
        Box::pin(async move {
            let asked = tokio::task::spawn_blocking(move || ask(&text));
            // Whoever cannot be asked has not said yes.
            asked.await.ok().and_then(Result::ok).unwrap_or(Answer::No)
        })
    }
}

fn words(question: &Question) -> String {
    let outside = question.outside.as_ref();
    let outside = outside.map_or(String::new(), |path| {
        format!(" (outside of this folder: {})", path.display())
    });
    let always = &question.permission;
    let line = format!("{}{outside}", question.summary);
    let line = text::plain(&line);
    format!("\r\u{1b}[2K? {line}\n  run it? [y]es, [n]o, [a]lways allow {always}: ")
}

fn ask(question: &str) -> std::io::Result<Answer> {
    loop {
        let mut stderr = std::io::stderr().lock();
        stderr.write_all(question.as_bytes())?;
        stderr.flush()?;
        drop(stderr);
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            return Ok(Answer::No);
        }
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" => return Ok(Answer::Yes),
            "a" | "always" => return Ok(Answer::Always),
            "n" | "no" => return Ok(Answer::No),
            _ => {}
        }
    }
}

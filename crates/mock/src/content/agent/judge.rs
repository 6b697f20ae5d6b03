//! A scripted judge that searches for words.
//!
//! A criterion is met when every text in backticks in it is found verbatim in the work.

use serde_json::{Value, json};

const JUDGE_REQUEST: &str = "Judge whether a piece of work meets each of these criteria:";
const BEGIN_MARKER: &str = "BEGIN ";
const END_MARKER: &str = "END ";

/// Returns the verdict that a prompt asks for, if it asks for one.
pub(super) fn verdict(prompt: &str) -> Option<String> {
    let mut lines = prompt.lines();
    lines.find(|line| *line == JUDGE_REQUEST)?;
    let mut criteria: Vec<String> = Vec::new();
    let mark = loop {
        let line = lines.next()?;
        if let Some(mark) = line.strip_prefix(BEGIN_MARKER) {
            break mark;
        }
        match (parse_criterion(line), criteria.last_mut()) {
            (Some(criterion), _) => criteria.push(criterion.to_owned()),
            // The criterion continues on this line.
            (None, Some(criterion)) if line.starts_with(' ') => criterion.push_str(line),
            _ => {}
        }
    };
    let is_end = |line: &&str| line.strip_prefix(END_MARKER) == Some(mark);
    let work: Vec<&str> = lines.take_while(|line| !is_end(line)).collect();
    let work = work.join("\n");
    let verdicts = (1..).zip(&criteria);
    let verdicts: Vec<Value> = verdicts
        .map(|(number, criterion)| judge_criterion(number, criterion, &work))
        .collect();
    Some(json!({ "criteria": verdicts }).to_string())
}

/// Parses the criterion on a line that begins with a number.
fn parse_criterion(line: &str) -> Option<&str> {
    let (number, criterion) = line.split_once(". ")?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(criterion)
}

fn judge_criterion(number: usize, criterion: &str, work: &str) -> Value {
    let wanted = criterion.split('`').skip(1).step_by(2);
    let missing = wanted.into_iter().find(|word| !work.contains(word));
    let why = match missing {
        Some(word) => format!("`{word}` is not in it"),
        None => "nothing is missing".to_owned(),
    };
    json!({ "number": number, "met": missing.is_none(), "why": why })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(work: &str) -> String {
        format!(
            "{JUDGE_REQUEST}\n\n1. It is short.\n2. It names `divide`\n   and `zero`.\n\nThe work is everything between the \
             line `BEGIN_MARKER 0f` and the line `END_MARKER 0f`.\n\nBEGIN 0f\n{work}\nEND 0f\n\nAnswer with JSON: `nothing`.\n"
        )
    }

    #[test]
    fn criterion_is_met_when_its_quoted_words_occur() {
        let table = [
            ("divide by zero", [true, true]),
            ("divide\nEND 00\nby zero", [true, true]),
            ("Divide by zero", [true, false]),
            ("divide", [true, false]),
        ];
        for (work, expected) in table {
            let verdict: Value = serde_json::from_str(&verdict(&prompt(work)).unwrap()).unwrap();
            let verdicts = verdict["criteria"].as_array().unwrap();
            let met: Vec<&Value> = verdicts.iter().map(|verdict| &verdict["met"]).collect();
            assert_eq!(met, expected, "{work}");
        }
    }

    #[test]
    fn no_verdict_without_complete_judge_request() {
        assert_eq!(verdict("Judge me."), None);
        assert_eq!(verdict(&format!("{JUDGE_REQUEST}\n1. It ends here.")), None);
    }
}

//! Run requests: posted, taken, damaged, and posted by many processes at once.

use super::*;
use tempfile::TempDir;

const RUN: &str = "019a8f2e-0c1d-7e3f-8a4b-5c6d7e8f9a0b";
const OTHER: &str = "019a8f2e-0c1d-7e3f-8a4b-5c6d7e8f9a0c";

fn mailbox() -> (TempDir, Mailbox) {
    let folder = TempDir::new().unwrap();
    let mailbox = Mailbox::new(&folder.path().join("mail"));
    (folder, mailbox)
}

fn answer(choice: &str) -> RunRequest {
    RunRequest::Answer {
        step: Some("approve".to_owned()),
        choice: Some(choice.to_owned()),
    }
}

fn taken(mailbox: &Mailbox, run: &str) -> Vec<RunRequest> {
    let letters = mailbox.take(run).unwrap();
    letters.into_iter().map(Result::unwrap).collect()
}

#[test]
fn requests_are_taken_once_in_order_by_their_run() {
    let (_folder, mailbox) = mailbox();
    assert_eq!(taken(&mailbox, RUN), []);
    let letters = [
        answer("y"),
        RunRequest::RetryNow { step: None },
        answer("n"),
        RunRequest::Cancel {},
    ];
    for letter in &letters {
        mailbox.post(RUN, letter).unwrap();
    }
    mailbox.post(OTHER, &RunRequest::Cancel {}).unwrap();
    // A mailbox that opens later finds them as well.
    let later = mailbox.clone();
    assert_eq!(taken(&later, RUN), letters);
    assert_eq!(taken(&mailbox, RUN), []);
    mailbox.post(RUN, &answer("y")).unwrap();
    assert_eq!(taken(&mailbox, RUN), [answer("y")]);
    assert_eq!(taken(&mailbox, OTHER), [RunRequest::Cancel {}]);
}

#[test]
fn tenth_request_comes_after_ninth() {
    let (_folder, mailbox) = mailbox();
    let letters: Vec<_> = (0..25).map(|number| answer(&number.to_string())).collect();
    for letter in &letters {
        mailbox.post(RUN, letter).unwrap();
    }
    assert_eq!(taken(&mailbox, RUN), letters);
}

#[test]
fn request_file_format_is_stable() {
    let table = [
        (
            answer("y"),
            r#"{"type":"answer","step":"approve","choice":"y"}"#,
        ),
        (
            RunRequest::Answer {
                step: None,
                choice: None,
            },
            r#"{"type":"answer"}"#,
        ),
        (
            RunRequest::RetryNow { step: None },
            r#"{"type":"retry_now"}"#,
        ),
        (RunRequest::Cancel {}, r#"{"type":"cancel"}"#),
    ];
    for (letter, text) in table {
        assert_eq!(serde_json::to_string(&letter).unwrap(), text);
        assert_eq!(serde_json::from_str::<RunRequest>(text).unwrap(), letter);
    }
}

#[test]
fn unreadable_request_is_reported_once_and_rest_is_taken() {
    let (folder, mailbox) = mailbox();
    mailbox.post(RUN, &answer("y")).unwrap();
    let place = folder.path().join("mail").join(RUN);
    let spoilt = [
        "",
        "{",
        r#"{"type":"explode"}"#,
        r#"{"type":"cancel","when":"later"}"#,
        "\u{0}",
    ];
    for (number, text) in spoilt.iter().enumerate() {
        fs::write(place.join(file_name(2 + number as u64)), text).unwrap();
    }
    let long = format!(r#"{{"type":"retry_now","step":"{}"}}"#, "x".repeat(70_000));
    fs::write(place.join(file_name(7)), long).unwrap();
    fs::create_dir(place.join(file_name(8))).unwrap();
    fs::write(place.join("draft"), "of one who died").unwrap();
    fs::write(place.join("9.json"), r#"{"type":"cancel"}"#).unwrap();
    mailbox.post(RUN, &answer("n")).unwrap();
    let letters = mailbox.take(RUN).unwrap();
    assert_eq!(letters.len(), 9);
    assert!(matches!(&letters[0], Ok(letter) if *letter == answer("y")));
    assert!(matches!(&letters[8], Ok(letter) if *letter == answer("n")));
    for letter in &letters[1..8] {
        let error = letter.as_ref().unwrap_err();
        assert!(matches!(error, Error::Unreadable { .. }), "{error}");
    }
    assert_eq!(taken(&mailbox, RUN), []);
}

#[test]
fn mailbox_rejects_invalid_run_ids() {
    let (folder, mailbox) = mailbox();
    let upper = RUN.to_uppercase();
    let braced = format!("{{{RUN}}}");
    let simple = RUN.replace('-', "");
    let below = format!("{RUN}/..");
    let absolute = folder.path().to_str().unwrap();
    let names = [
        "", ".", "..", "lock", "../x", absolute, &upper, &braced, &simple, &below,
    ];
    for run in names {
        let refused = [
            mailbox.post(run, &RunRequest::Cancel {}).err(),
            mailbox.take(run).err(),
        ];
        for error in refused {
            assert!(matches!(error, Some(Error::InvalidRunId { .. })), "{run}");
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn requests_are_bounded_in_size_and_count() {
    let (_folder, mailbox) = mailbox();
    let long = answer(&"x".repeat(MAX_REQUEST_BYTES));
    let refused = mailbox.post(RUN, &long);
    assert!(matches!(refused, Err(Error::TooLong { .. })));
    for _ in 0..MAX_QUEUED_REQUESTS {
        mailbox.post(RUN, &RunRequest::Cancel {}).unwrap();
    }
    let refused = mailbox.post(RUN, &RunRequest::Cancel {});
    assert!(matches!(refused, Err(Error::Full { .. })));
    mailbox.post(OTHER, &RunRequest::Cancel {}).unwrap();
    assert_eq!(taken(&mailbox, RUN).len(), MAX_QUEUED_REQUESTS);
    mailbox.post(RUN, &RunRequest::Cancel {}).unwrap();
}

#[test]
fn concurrently_posted_requests_are_taken_exactly_once() {
    let (_folder, mailbox) = mailbox();
    let (writers, each) = (4, 25);
    let mut found = Vec::new();
    std::thread::scope(|scope| {
        let post = |writer| {
            let mailbox = &mailbox;
            scope.spawn(move || {
                for number in 0..each {
                    let letter = answer(&format!("{writer} {number:02}"));
                    mailbox.post(RUN, &letter).unwrap();
                }
            })
        };
        let posting: Vec<_> = (0..writers).map(post).collect();
        while !posting.iter().all(|writer| writer.is_finished()) {
            found.extend(taken(&mailbox, RUN));
            std::thread::yield_now();
        }
    });
    found.extend(taken(&mailbox, RUN));
    assert_eq!(taken(&mailbox, RUN), []);
    for writer in 0..writers {
        let own = |letter: &&RunRequest| matches!(letter, RunRequest::Answer { choice: Some(choice), .. } if choice.starts_with(&format!("{writer} ")));
        let letters: Vec<_> = found.iter().filter(own).cloned().collect();
        let expected: Vec<_> = (0..each)
            .map(|number| answer(&format!("{writer} {number:02}")))
            .collect();
        assert_eq!(letters, expected);
    }
}

#[cfg(unix)]
#[test]
fn request_files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, mailbox) = mailbox();
    let mail = folder.path().join("mail");
    fs::create_dir(&mail).unwrap();
    mailbox.post(RUN, &RunRequest::Cancel {}).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let place = mail.join(RUN);
    assert_eq!((mode(&mail), mode(&place)), (0o700, 0o700));
    assert_eq!(mode(&place.join(file_name(1))), 0o600);
    assert_eq!(mode(&mail.join("lock")), 0o600);
}

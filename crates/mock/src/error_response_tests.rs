use super::*;
use crate::reply::Action;
use crate::request_facts::RequestFacts;
use outlast_dialect::error_body::{self, RawError};
use outlast_kernel::classify::classify;
use outlast_kernel::failure::Transport;
use outlast_kernel::verdict::{Cause, Verdict};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn classified(dialect: Dialect, refusal: &ErrorResponse) -> Verdict {
    let mut headers = refusal.headers.clone();
    headers.push(("date".to_owned(), http_date(NOW)));
    classify(&error_body::parse(RawError {
        provider: dialect.name(),
        transport: Transport::Http,
        status: Some(refusal.status),
        headers: &headers,
        body: &dialect.encode_error(&refusal.error),
        at: NOW,
    }))
}

#[test]
fn every_provider_error_is_classified_in_every_dialect() {
    let causes = [
        (ProviderError::Overloaded, Cause::Overloaded),
        (ProviderError::RateLimited, Cause::RateLimited),
        (ProviderError::UsageLimit, Cause::UsageLimit),
        (ProviderError::ServerError, Cause::ServerError),
        (ProviderError::Overflow, Cause::ContextOverflow),
        (ProviderError::Auth, Cause::Auth),
        (ProviderError::Billing, Cause::Billing),
    ];
    assert_eq!(
        causes.map(|(trouble, _)| trouble),
        ProviderError::KEYWORDS.map(|(_, trouble, _)| trouble)
    );
    for dialect in Dialect::ALL {
        for (trouble, cause) in causes {
            let verdict = classified(dialect, &for_provider_error(trouble, dialect, NOW));
            assert_eq!(verdict.cause, cause, "{dialect:?} {trouble:?}");
        }
    }
}

#[test]
fn rate_limit_hint_is_parsed_in_every_form() {
    for dialect in Dialect::ALL {
        for (word, form, _) in HintForm::KEYWORDS {
            for wait in [Duration::from_secs(360), Duration::from_millis(11_054)] {
                let refusal = rate_limit(dialect, wait, NOW + wait, form);
                let hint = classified(dialect, &refusal).hint;
                let stated = hint.map(|hint| hint.not_before.since(NOW));
                let place = format!("{dialect:?} {word} {refusal:?}");
                if form == HintForm::Nowhere {
                    assert_eq!(stated, None, "{place}");
                    continue;
                }
                // Whole seconds are rounded up, so a client that waits that long is not too early.
                let stated = stated.expect(&place);
                let late = stated.checked_sub(wait).expect(&place);
                assert!(late < Duration::from_secs(1), "{place}: {stated:?}");
            }
        }
    }
}

#[test]
fn usage_limit_states_its_reset_time() {
    let wait = Duration::from_secs(18_000);
    for dialect in Dialect::ALL {
        let verdict = classified(dialect, &usage_limit(dialect, wait, NOW + wait));
        let hint = verdict.hint.unwrap();
        assert_eq!(hint.not_before, NOW + wait, "{dialect:?}");
    }
}

#[test]
fn durations_and_dates_use_server_formats() {
    let table = [
        (28, "28ms"),
        (1_500, "1.500s"),
        (2_000, "2s"),
        (360_000, "6m0s"),
        (3_600_000, "1h0m0s"),
    ];
    for (millis, text) in table {
        assert_eq!(go_duration(Duration::from_millis(millis)), text);
    }
    assert_eq!(http_date(NOW), "Fri, 15 Jan 2027 08:00:00 GMT");
}

#[test]
fn request_errors_are_classified_in_every_dialect() {
    let mut facts = RequestFacts {
        tokens: 101,
        bytes: 1001,
        ..RequestFacts::default()
    };
    facts.conversation.is_prefilled = true;
    let table = [
        (Action::Window { limit: 100 }, 400, Cause::ContextOverflow),
        (
            Action::TooLarge { limit: 1000 },
            413,
            Cause::PayloadTooLarge,
        ),
        (Action::BodyTimeout, 408, Cause::Timeout),
        (Action::NoPrefill, 400, Cause::InvalidRequest),
    ];
    for dialect in Dialect::ALL {
        for (act, status, cause) in &table {
            let refusal = for_request(act, dialect, &facts).unwrap();
            let verdict = classified(dialect, &refusal);
            assert_eq!(
                (refusal.status, verdict.cause),
                (*status, *cause),
                "{dialect:?} {act:?}"
            );
        }
        let window = for_request(&table[0].0, dialect, &facts).unwrap();
        let message = window.error.message;
        assert!(
            message.contains("101 tokens") && message.contains("100 "),
            "{message}"
        );
    }
}

#[test]
fn request_at_its_limit_is_not_refused() {
    let facts = RequestFacts {
        tokens: 100,
        bytes: 1000,
        ..RequestFacts::default()
    };
    for act in [
        Action::Window { limit: 100 },
        Action::TooLarge { limit: 1000 },
        Action::NoPrefill,
    ] {
        assert_eq!(
            for_request(&act, Dialect::Anthropic, &facts),
            None,
            "{act:?}"
        );
    }
}

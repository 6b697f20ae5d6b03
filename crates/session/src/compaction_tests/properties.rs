//! Properties that hold for every conversation.

use super::support::{
    SUMMARY, Step, all_text, conversation, fixture, is_paired, newest_prompt, request, small,
    spoken, steps,
};
use crate::compaction::{split_point, summary};
use outlast_dialect::{Request, Role};
use outlast_engine::compaction::{CompactedConversation, Size};
use outlast_engine::token_estimate;
use outlast_kernel::event::CompactionReason;
use proptest::prelude::*;

fn reasons() -> impl Strategy<Value = CompactionReason> {
    use CompactionReason::{Manual, Overflow, SlowUpload, Threshold, TooManyBytes};
    proptest::sample::select(vec![Manual, Threshold, Overflow, TooManyBytes, SlowUpload])
}

fn windows() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![Just(None), (2000_u64..40_000).prop_map(Some)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn compaction_fits_and_is_well_formed_or_fails(
        steps in steps(25),
        window in windows(),
        reason in reasons(),
        billed in 0_u64..60_000,
    ) {
        let request = request(conversation(&steps));
        let before = request.clone();
        let tokens = token_estimate::request_tokens_with_billing(&request, None).max(billed);
        let size = Size { tokens, window };
        let outcome = fixture(small()).compact(&request, size, reason);
        prop_assert_eq!(&request, &before);
        match outcome.result {
            Ok(smaller) => {
                prop_assert!(is_paired(&smaller.messages));
                prop_assert_eq!(smaller.messages[0].role, Role::User);
                prop_assert!(all_text(&smaller.messages).contains(&newest_prompt(&request.messages)));
                check_fit(&request, &smaller, size, reason)?;
            }
            Err(why) => prop_assert!(why.contains("start a new session"), "{}", why),
        }
    }

    #[test]
    fn split_point_never_separates_call_from_result(steps in steps(25), keep in 0_u64..20_000) {
        let messages = conversation(&steps);
        let place = split_point::split_index(&messages, keep);
        let (old, kept) = messages.split_at(place);
        prop_assert!(is_paired(old) && is_paired(kept));
        // More than `keep` stays only when the last step alone is larger.
        if token_estimate::messages_tokens(kept) > keep && place > 0 {
            let smaller = (1..kept.len()).find(|place| is_paired(&kept[*place..]));
            prop_assert_eq!(smaller, None);
        }
    }

    #[test]
    fn second_compaction_keeps_prompt_and_merges_summaries(
        first in steps(12), second in steps(12),
    ) {
        let world = fixture(small());
        let size = |request: &Request| Size { tokens: token_estimate::request_tokens_with_billing(request, None), window: Some(12_000) };
        let mut request = request(conversation(&first));
        let outcome = world.compact(&request, size(&request), CompactionReason::Manual);
        let smaller = outcome.result.ok().filter(|smaller| smaller.model.is_some());
        prop_assume!(smaller.is_some());
        request.messages = smaller.unwrap().messages;
        let prompt = newest_prompt(&request.messages);
        let quoted = prompt.rsplit(']').next().unwrap().trim().to_owned();
        let more = second.iter().enumerate().filter(|(_, step)| !matches!(step, Step::Prompt { .. }));
        request.messages.extend(more.flat_map(|(number, step)| spoken(100 + number, step)));
        let outcome = world.compact(&request, size(&request), CompactionReason::Manual);
        if let Ok(smaller) = outcome.result {
            prop_assert!(is_paired(&smaller.messages));
            prop_assert!(all_text(&smaller.messages).contains(&quoted), "{}", quoted);
            if smaller.model.is_some() {
                prop_assert!(world.last_request_text().contains(SUMMARY));
                let summaries = smaller.messages.iter().filter(|message| summary::is_summary(message));
                prop_assert_eq!(summaries.count(), 1);
            }
        }
    }
}

/// An independent implementation of the rule that a result fits.
fn check_fit(
    request: &Request,
    smaller: &CompactedConversation,
    size: Size,
    reason: CompactionReason,
) -> Result<(), TestCaseError> {
    let after = Request {
        messages: smaller.messages.clone(),
        ..request.clone()
    };
    if matches!(
        reason,
        CompactionReason::TooManyBytes | CompactionReason::SlowUpload
    ) {
        prop_assert!(
            token_estimate::request_bytes(&after) * 2 <= token_estimate::request_bytes(request)
        );
        return Ok(());
    }
    let (own, new) = (
        token_estimate::request_tokens(request),
        token_estimate::request_tokens(&after),
    );
    prop_assert!(smaller.size >= new);
    prop_assert!(
        smaller.size * own >= new * size.tokens,
        "what was billed counts"
    );
    match size.window {
        Some(window) => prop_assert!(smaller.size + 8192.min(window / 4) <= window),
        None => prop_assert!(smaller.size * 2 <= size.tokens),
    }
    if reason != CompactionReason::Manual {
        prop_assert!(
            smaller.size * 10 <= size.tokens.max(size.window.unwrap_or_default()) * 9 + 10
        );
    }
    Ok(())
}

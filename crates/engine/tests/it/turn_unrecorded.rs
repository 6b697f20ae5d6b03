//! A turn that cannot write to its journal, or may not any more.

use crate::journaled::{
    Case, WriteScript, ownership_lost, retry_then_tools_script, write_failed, write_succeeds,
};
use crate::support::hello;
use outlast_kernel::event::TurnStatus;

// --- A journal that fails ---

#[tokio::test(start_paused = true)]
async fn journal_failure_blocks_only_at_most_once_tools() {
    let came = Case::new(retry_then_tools_script(), |_| write_failed())
        .run()
        .await;
    assert_eq!(
        (came.ended.seal, came.ended.is_recorded),
        (TurnStatus::Completed, false)
    );
    assert_eq!(came.ended.message.text(), "Hello");
    assert_eq!((came.count("say unrecorded"), came.count("call")), (1, 3));
    assert_eq!(came.lines(&["run", "sleep"]), ["sleep 2", "run read"]);
    let refused = "`send` was not run: that it runs could not be written down first";
    let results = [("done".to_owned(), false), (refused.to_owned(), true)];
    assert_eq!(came.results(), results);
}

#[tokio::test(start_paused = true)]
async fn failed_writes_are_replayed_in_order_on_recovery() {
    let whole = Case::new(retry_then_tools_script(), write_succeeds)
        .run()
        .await
        .kinds();
    let writes = 11;
    for fails_until in 1..writes {
        let case = Case {
            fate: Box::new(move |number| {
                if number <= fails_until {
                    write_failed()
                } else {
                    Ok(())
                }
            }),
            ..Case::new(retry_then_tools_script(), write_succeeds)
        };
        let came = case.run().await;
        assert_eq!(
            (came.ended.seal, came.ended.is_recorded),
            (TurnStatus::Completed, true)
        );
        assert_eq!(came.kinds(), whole, "{fails_until} writes failed");
        assert_eq!(came.count("say unrecorded"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn each_journal_outage_is_reported_once() {
    let fate: WriteScript = |number| match number {
        1..=3 | 6..=7 => write_failed(),
        _ => Ok(()),
    };
    let came = Case::new(retry_then_tools_script(), fate).run().await;
    assert!(came.ended.is_recorded);
    assert_eq!(came.count("say unrecorded"), 2);
}

#[tokio::test(start_paused = true)]
async fn recovered_journal_lets_all_tools_run() {
    let fate: WriteScript = |number| if number <= 5 { write_failed() } else { Ok(()) };
    let came = Case::new(retry_then_tools_script(), fate).run().await;
    assert_eq!(came.lines(&["run"]), ["run read", "run send"]);
    assert!(came.ended.is_recorded);
}

#[tokio::test(start_paused = true)]
async fn completion_is_delivered_despite_journal_failure() {
    let fate: WriteScript = |number| if number >= 3 { write_failed() } else { Ok(()) };
    let came = Case::new([hello()], fate).run().await;
    assert_eq!(
        (came.ended.seal, came.ended.is_recorded),
        (TurnStatus::Completed, false)
    );
    assert_eq!(came.kinds(), ["prompt", "attempt_started"]);
    let expected = [
        "say unrecorded",
        "say step_complete",
        "say done",
        "say sealed",
    ];
    assert_eq!(came.log[came.log.len() - 4..], expected);
}

// --- A journal that another process owns ---

#[tokio::test(start_paused = true)]
async fn no_call_tool_or_write_after_ownership_loss() {
    let whole = Case::new(retry_then_tools_script(), write_succeeds)
        .run()
        .await;
    let writes = whole.lines(&["write"]).len();
    assert_eq!(writes, 11);
    for number in 1..=writes {
        let case = Case {
            fate: Box::new(move |tried| {
                if tried >= number {
                    ownership_lost()
                } else {
                    Ok(())
                }
            }),
            ..Case::new(retry_then_tools_script(), write_succeeds)
        };
        let came = case.run().await;
        assert!(!came.ended.is_recorded, "write {number}");
        let first = came.log.iter().position(|line| line.starts_with("lose"));
        let rest = &came.log[first.unwrap()..];
        let is_act = |line: &&String| {
            ["call", "run", "sleep", "write"]
                .iter()
                .any(|act| line.starts_with(act))
        };
        assert_eq!(rest.iter().find(is_act), None, "write {number}: {rest:?}");
        assert_eq!(came.count("say sealed"), 1);
        // The last response had arrived when ownership was lost; before that there is none.
        let seal = if number == writes {
            TurnStatus::Completed
        } else {
            TurnStatus::Error
        };
        assert_eq!(came.ended.seal, seal, "write {number}");
        let kept = whole.kinds();
        assert_eq!(came.kinds(), kept[..came.written.len()], "write {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn ownership_loss_ends_retry_chain_with_reason() {
    let fate: WriteScript = |number| {
        if number >= 3 {
            ownership_lost()
        } else {
            Ok(())
        }
    };
    let came = Case::new(retry_then_tools_script(), fate).run().await;
    let tail = ["say retry_scheduled", "say retry_ended", "say error"];
    assert_eq!(came.lines(&["say retry", "say error"]), tail);
    let fate: WriteScript = |number| {
        if number >= 4 {
            ownership_lost()
        } else {
            Ok(())
        }
    };
    let came = Case::new(retry_then_tools_script(), fate).run().await;
    let (judged, _) = came.ended.error.unwrap();
    assert_eq!(judged.failure.message, "another process has it");
}

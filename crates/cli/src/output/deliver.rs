//! What came of a turn whose process died before it could say so.
//!
//! All of it is in the journal: neither the folder of the session nor its provider is needed any more.

use crate::output::diagnostics::print_status;
use crate::output::screen::Screen;
use crate::platform::exit::Exit;
use crate::platform::signals::Signal;
use crate::print_diagnostic;
use anyhow::Context;
use outlast_engine::Clock;
use outlast_engine::journal::{Entry, TurnError};
use outlast_kernel::event::{Body, Event, StopReason, TurnStatus, VERSION};
use outlast_session::parse_entry;
use outlast_store::Journal;

/// How the last turn of a session ended.
struct TurnOutcome {
    turn_id: String,
    answer: String,
    stop_reason: Option<StopReason>,
    seal: TurnStatus,
    error: Option<TurnError>,
}

/// Says how the last turn of a session ended, and lets go of the session: it is not said again.
pub(crate) async fn deliver(
    journal: &Journal,
    session: &str,
    screen: Screen,
    clock: &dyn Clock,
) -> anyhow::Result<Exit> {
    let hold = journal.claim(session).await?;
    let told = load_outcome(journal, session).await?;
    print_status(&format!(
        "Session {session} was finished; its process died before it could say so."
    ));
    if screen.is_json() {
        print_events(screen, &told, session, clock)?;
    } else {
        print_outcome(&screen, &told)?;
    }
    journal.release(hold).await?;
    Ok(match told.seal {
        TurnStatus::Completed => Exit::Success,
        TurnStatus::Error => Exit::Failed,
        TurnStatus::Aborted => Exit::Signalled(Signal::Interrupt),
    })
}

async fn load_outcome(journal: &Journal, session: &str) -> anyhow::Result<TurnOutcome> {
    let last = async |kind| -> anyhow::Result<Option<Entry>> {
        let last = journal.last_of_kind(session, kind).await?;
        Ok(last.map(|last| parse_entry(session, &last)).transpose()?)
    };
    let turn_id = match last("prompt").await? {
        Some(Entry::Prompt { turn_id, .. }) => turn_id,
        _ => String::new(),
    };
    let (answer, stop_reason) = match last("message").await? {
        Some(Entry::Message {
            message,
            stop_reason,
            ..
        }) => (message.text(), Some(stop_reason)),
        _ => (String::new(), None),
    };
    match last("settled").await? {
        Some(Entry::Settled { seal, error, .. }) => Ok(TurnOutcome {
            turn_id,
            answer,
            stop_reason,
            seal,
            error,
        }),
        _ => Err(anyhow::anyhow!("nothing was finished in it")),
    }
}

fn print_outcome(screen: &Screen, told: &TurnOutcome) -> anyhow::Result<()> {
    match (told.seal, &told.error) {
        (TurnStatus::Completed, _) => screen.print_complete_answer(&told.answer)?,
        (TurnStatus::Aborted, _) => print_diagnostic("Cancelled."),
        (TurnStatus::Error, Some(problem)) => {
            let phrase = problem.cause.phrase();
            print_diagnostic(&format!(
                "error: {phrase}: {}: {}",
                problem.message, problem.reason
            ));
        }
        (TurnStatus::Error, None) => print_diagnostic("error: it failed"),
    }
    Ok(())
}

/// The events that a reader of the first process may have missed: the answer as a whole, or the error, and the end.
fn print_events(
    mut screen: Screen,
    told: &TurnOutcome,
    session: &str,
    clock: &dyn Clock,
) -> anyhow::Result<()> {
    let result = match (told.seal, &told.error) {
        (TurnStatus::Completed, _) => Some(Body::TextDelta {
            text: told.answer.clone(),
        }),
        (_, error) => error.as_ref().map(|problem| Body::Error {
            class: problem.cause.class(),
            cause: problem.cause,
            message: problem.message.clone(),
            code: None,
            reason: problem.reason.clone(),
        }),
    };
    let (status, stop_reason) = (told.seal, told.stop_reason);
    let done = stop_reason.filter(|_| status == TurnStatus::Completed);
    let done = done.map(|stop_reason| Body::Done { stop_reason });
    let bodies = result
        .into_iter()
        .chain(done)
        .chain([Body::Sealed { status }]);
    for (body, seq) in bodies.zip(1..) {
        screen.event(&Event {
            v: VERSION,
            seq,
            time: clock.now(),
            session_id: session.to_owned(),
            turn_id: told.turn_id.clone(),
            attempt_id: None,
            body,
        });
    }
    screen.into_write_result().context("cannot write to stdout")
}

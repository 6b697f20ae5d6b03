//! Logs that a gate has begun or ceased to hold requests back, in the words of the status.

use crate::observe::log::EventKind;
use crate::shared::Shared;
use outlast_engine::shared_state::GateStatus;
use outlast_kernel::gate::Mode;
use outlast_kernel::verdict::Cause;
use std::collections::HashMap;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(1);

/// Logs the changes of all gates, until it is dropped.
pub(crate) async fn run(shared: &Shared) {
    let mut known = HashMap::new();
    loop {
        let next = shared.now() + INTERVAL;
        shared.timers.sleep_until(Some(next)).await;
        for change in changes(&mut known, shared.shared_state.failing_gates()) {
            shared.emit(EventKind::Gate {
                name: &change.name,
                cause: change.cause,
                state: &change.state,
            });
        }
    }
}

#[derive(Debug, PartialEq)]
struct Change {
    name: String,
    cause: Option<Cause>,
    state: String,
}

/// Returns the gates whose mode has changed; `known` are the modes of those that failed before.
fn changes(known: &mut HashMap<String, Mode>, failing: Vec<GateStatus>) -> Vec<Change> {
    let is_failing = |name: &String| failing.iter().any(|gate| gate.name == *name);
    let recovered = known.extract_if(|name, _| !is_failing(name));
    let recovered = recovered.map(|(name, _)| Change {
        name,
        cause: None,
        state: "calls succeed".to_owned(),
    });
    let mut changes: Vec<Change> = recovered.collect();
    for gate in failing {
        let mode = gate.gate.mode();
        if known.insert(gate.name.clone(), mode) != Some(mode) {
            changes.push(Change {
                name: gate.name,
                cause: gate.cause,
                state: gate.summary,
            });
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_kernel::gate::Gate;

    #[test]
    fn gate_is_logged_when_it_begins_and_when_it_ceases_to_fail() {
        let failing = |share: &str| GateStatus {
            name: "anthropic@/work/m".to_owned(),
            cause: Some(Cause::Overloaded),
            gate: Gate::default(),
            waiting: 0,
            failed_share: Some(0.1),
            summary: format!("{share} % of calls fail"),
        };
        let logged = |name: &str, cause, state: &str| Change {
            name: name.to_owned(),
            cause,
            state: state.to_owned(),
        };
        let mut known = HashMap::new();
        let name = "anthropic@/work/m";
        let first = changes(&mut known, vec![failing("10")]);
        assert_eq!(
            first,
            [logged(name, Some(Cause::Overloaded), "10 % of calls fail")]
        );
        assert_eq!(changes(&mut known, vec![failing("12")]), []);
        assert_eq!(
            changes(&mut known, vec![]),
            [logged(name, None, "calls succeed")]
        );
        assert_eq!(changes(&mut known, vec![]), []);
    }
}

use outlast_mock::simulation::{Numbers, Scenario, Strategy, run};
use std::time::Duration;
fn scenarios() -> Vec<(String, Scenario)> {
    let mut all = vec![];
    for agents in [500, 5000] {
        for (tokens, tn) in [(None, ""), (Some(250_000), " tokens")] {
            let base = Scenario {
                agents,
                tokens_per_second: tokens,
                ..Scenario::default()
            };
            for m in [1, 30, 240] {
                for ra in [false, true] {
                    all.push((
                        format!("{agents} {m}m ra={ra}{tn}"),
                        Scenario {
                            retry_after: ra,
                            ..base.clone().with_outage(Duration::from_secs(60 * m))
                        },
                    ));
                }
            }
            for ra in [false, true] {
                all.push((
                    format!("{agents} 2:1 ra={ra}{tn}"),
                    Scenario {
                        load: 200,
                        retry_after: ra,
                        ..base.clone()
                    },
                ));
            }
        }
    }
    all.push((
        "5000/250 30m".into(),
        Scenario {
            agents: 5000,
            capacity: 250,
            ..Scenario::default()
        }
        .with_outage(Duration::from_secs(1800)),
    ));
    all.push((
        "5000/250 2:1".into(),
        Scenario {
            agents: 5000,
            capacity: 250,
            load: 200,
            ..Scenario::default()
        },
    ));
    all.push((
        "100/5 30m".into(),
        Scenario {
            agents: 100,
            capacity: 5,
            ..Scenario::default()
        }
        .with_outage(Duration::from_secs(1800)),
    ));
    all.push((
        "100/5 2:1".into(),
        Scenario {
            agents: 100,
            capacity: 5,
            load: 200,
            ..Scenario::default()
        },
    ));
    all.push((
        "500 load 30".into(),
        Scenario {
            load: 30,
            ..Scenario::default()
        }
        .with_outage(Duration::from_secs(1800)),
    ));
    all.push((
        "500 load 100".into(),
        Scenario {
            load: 101,
            ..Scenario::default()
        },
    ));
    all.push((
        "500 30m dead 5".into(),
        Scenario {
            dead_probes: 5,
            ..Scenario::default()
        }
        .with_outage(Duration::from_secs(1800)),
    ));
    for load in [50, 60, 70, 90, 95, 98, 105, 120, 400] {
        all.push((
            format!("500 load {load} 30m"),
            Scenario {
                load,
                ..Scenario::default()
            }
            .with_outage(Duration::from_secs(1800)),
        ));
    }
    let d = |m: u64| Duration::from_secs(m * 60);
    all.push((
        "500 30m down 9..41".into(),
        Scenario {
            store_down: Some(d(9)..d(41)),
            ..Scenario::default()
        }
        .with_outage(d(30)),
    ));
    all.push((
        "500 30m down 15..20".into(),
        Scenario {
            store_down: Some(d(15)..d(20)),
            ..Scenario::default()
        }
        .with_outage(d(30)),
    ));
    all.push((
        "500 30m down 38..42".into(),
        Scenario {
            store_down: Some(d(38)..d(42)),
            ..Scenario::default()
        }
        .with_outage(d(30)),
    ));
    all.push((
        "500 2:1 down 10..20".into(),
        Scenario {
            load: 200,
            store_down: Some(d(10)..d(20)),
            ..Scenario::default()
        },
    ));
    all.push((
        "500 2:1 down all".into(),
        Scenario {
            load: 200,
            store_down: Some(d(0)..d(60)),
            ..Scenario::default()
        },
    ));
    all
}
fn show(name: &str, sc: &Scenario, n: &Numbers) {
    let bound = n.blocked as f64 * 1.5 / f64::from(sc.capacity) + 20.0;
    let s = |x: Option<u64>| x.map_or("-".into(), |x| format!("{:.1}", x as f64 / 1000.0));
    let drained = n.drained.map_or(f64::INFINITY, |d| d as f64 / 1000.0);
    let mut bad = vec![];
    if sc.outage.is_some() && drained > bound {
        bad.push("DRAIN");
    }
    if n.attempts_per_success > 1.05 {
        bad.push("APS");
    }
    if n.peak > 1.2 {
        bad.push("PEAK");
    }
    if n.fairness < 0.99 {
        bad.push("FAIR");
    }
    if n.goodput.is_some_and(|g| g < 0.97) {
        bad.push("GOODPUT");
    }
    if n.first_success.is_some_and(|f| f > 20000) {
        bad.push("FIRST");
    }
    println!(
        "{name:<24} out={:>7} aps={:.4} blk={} first={} drain={} (<={bound:.0}) refd={} peak={:.2} fair={:.4} good={} gaveup={} join={} waste={} {}",
        n.attempts_in_outage,
        n.attempts_per_success,
        n.blocked,
        s(n.first_success),
        s(n.drained),
        n.refused_after,
        n.peak,
        n.fairness,
        n.goodput.map_or("-".into(), |g| format!("{g:.4}")),
        n.given_up,
        s(n.joined_again),
        n.wasted_tokens,
        bad.join(" ")
    );
}
fn main() {
    let all = std::env::args().nth(1).is_some();
    for (name, sc) in scenarios() {
        for (i, st) in Strategy::usual().unwrap().iter().enumerate() {
            if i > 0 && !all {
                continue;
            }
            let n = run(&sc, st).unwrap();
            show(
                &if all {
                    format!("{name} {}", st.name)
                } else {
                    name.clone()
                },
                &sc,
                &n,
            );
        }
    }
}

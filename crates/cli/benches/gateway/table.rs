//! Prints the figures as a table, each beside nginx's, and checks the limits for Outlast.

use crate::answers::Dialect;
use crate::compare::{Figures, Kind, Row};
use crate::systems::Name;

/// Maximum CPU time for each request and each stream, relative to nginx.
const MAX_CPU_RATIO: f64 = 2.0;
/// Maximum latency added to a request, relative to nginx.
const MAX_ADDED_LATENCY: f64 = 2.0;
/// Minimum throughput, relative to nginx.
const MIN_PACE: f64 = 0.6;

/// Prints everything; returns the limits that are exceeded.
pub(crate) fn print(rows: &[Row]) -> Vec<String> {
    let mut broken = Vec::new();
    for dialect in Dialect::ALL {
        let shown = rows
            .iter()
            .filter_map(|row| Medians::of(rows, row, dialect));
        let shown: Vec<Medians> = shown.collect();
        println!("\n{}\n", dialect.path());
        println!(
            "| system | CPU per request | × nginx | requests/s | × nginx | p50 alone | added | × nginx | p99 alone \
             | CPU per stream | × nginx | streams/s | CPU per stream, frame by frame | × nginx | streams/s | core busy |"
        );
        println!("|{}", "---|".repeat(16));
        for one in &shown {
            println!("{}", one.line());
            if one.name == Name::Outlast {
                broken.extend(
                    one.broken()
                        .into_iter()
                        .map(|what| format!("{what} ({dialect:?})")),
                );
            }
        }
    }
    broken
}

/// The medians of a system in one dialect.
struct Medians {
    name: Name,
    alone: Figures,
    whole: Figures,
    stream: Figures,
    frames: Figures,
    added: Option<f64>,
    ratios: Ratios,
}

/// Ratios to nginx; `None` without nginx.
struct Ratios {
    cpu: Option<f64>,
    pace: Option<f64>,
    added: Option<f64>,
    stream: Option<f64>,
    frames: Option<f64>,
}

impl Medians {
    fn of(rows: &[Row], row: &Row, dialect: Dialect) -> Option<Self> {
        let rounds = |row: &Row, kind| {
            let found = row
                .cells
                .iter()
                .find(|(cell, _)| cell.dialect == dialect && cell.kind == kind);
            found.map(|(_, rounds)| rounds.clone())
        };
        let of = |name: Name, kind| rounds(rows.iter().find(|row| row.name == name)?, kind);
        let ratio = |kind, figure: fn(&Figures) -> Option<f64>| {
            let (ours, theirs) = (rounds(row, kind)?, of(Name::Nginx, kind)?);
            let pairs = ours.iter().zip(&theirs);
            middle(
                pairs
                    .filter_map(|(ours, theirs)| Some(figure(ours)? / figure(theirs)?))
                    .collect(),
            )
        };
        let alone = |name: Name| of(name, Kind::Alone);
        let micros = |figures: &Figures| figures.p50.as_secs_f64() * 1e6;
        // Latency added to that of the direct connection in the same round.
        let added = |name: Name| -> Option<Vec<f64>> {
            let pairs = alone(name)?.into_iter().zip(alone(Name::Direct)?);
            Some(
                pairs
                    .map(|(through, direct)| micros(&through) - micros(&direct))
                    .collect(),
            )
        };
        let added_ratio = || {
            let pairs = added(row.name)?.into_iter().zip(added(Name::Nginx)?);
            middle(pairs.map(|(ours, theirs)| ours / theirs).collect())
        };
        Some(Self {
            name: row.name,
            alone: typical(&rounds(row, Kind::Alone)?)?,
            whole: typical(&rounds(row, Kind::Whole)?)?,
            stream: typical(&rounds(row, Kind::Stream)?)?,
            frames: typical(&rounds(row, Kind::Frames)?)?,
            added: added(row.name).and_then(middle),
            ratios: Ratios {
                cpu: ratio(Kind::Whole, |figures| figures.cpu),
                pace: ratio(Kind::Whole, |figures| Some(figures.per_second)),
                added: added_ratio(),
                stream: ratio(Kind::Stream, |figures| figures.cpu),
                frames: ratio(Kind::Frames, |figures| figures.cpu),
            },
        })
    }

    fn line(&self) -> String {
        let times = |ratio: Option<f64>| match ratio {
            Some(ratio) if self.name != Name::Direct => format!("{ratio:.2}"),
            _ => "–".to_owned(),
        };
        let cpu = |figures: &Figures| match figures.cpu {
            Some(cpu) => format!("{cpu:.4} ms"),
            None => "–".to_owned(),
        };
        let micros = |micros: f64| format!("{micros:.0} µs");
        let cells = [
            self.name.text().to_owned(),
            cpu(&self.whole),
            times(self.ratios.cpu),
            format!("{:.0}", self.whole.per_second),
            times(self.ratios.pace),
            micros(self.alone.p50.as_secs_f64() * 1e6),
            self.added.map_or("–".to_owned(), micros),
            times(self.ratios.added),
            micros(self.alone.p99.as_secs_f64() * 1e6),
            cpu(&self.stream),
            times(self.ratios.stream),
            format!("{:.0}", self.stream.per_second),
            cpu(&self.frames),
            times(self.ratios.frames),
            format!("{:.0}", self.frames.per_second),
            format!("{:.0} %", self.whole.busy * 100.0),
        ];
        format!("| {} |", cells.join(" | "))
    }

    fn broken(&self) -> Vec<String> {
        let Ratios {
            cpu,
            pace,
            added,
            stream,
            frames,
        } = self.ratios;
        let most = [
            ("CPU per request", cpu, MAX_CPU_RATIO),
            ("CPU per stream", stream, MAX_CPU_RATIO),
            ("CPU per stream, frame by frame", frames, MAX_CPU_RATIO),
            ("added p50", added, MAX_ADDED_LATENCY),
        ];
        let mut broken = Vec::new();
        for (what, ratio, limit) in most {
            if let Some(ratio) = ratio.filter(|ratio| *ratio > limit) {
                broken.push(format!("{what} {ratio:.2} × nginx's, at most {limit}"));
            }
        }
        if let Some(pace) = pace.filter(|pace| *pace < MIN_PACE) {
            broken.push(format!(
                "{pace:.2} × nginx's requests per second, at least {MIN_PACE}"
            ));
        }
        broken
    }
}

/// Returns the median of each figure separately.
fn typical(rounds: &[Figures]) -> Option<Figures> {
    let of = |figure: fn(&Figures) -> f64| middle(rounds.iter().map(figure).collect());
    let time = |figure: fn(&Figures) -> f64| of(figure).map(std::time::Duration::from_secs_f64);
    Some(Figures {
        requests: rounds.iter().map(|figures| figures.requests).sum(),
        cpu: middle(rounds.iter().filter_map(|figures| figures.cpu).collect()),
        busy: of(|figures| figures.busy)?,
        per_second: of(|figures| figures.per_second)?,
        p50: time(|figures| figures.p50.as_secs_f64())?,
        p99: time(|figures| figures.p99.as_secs_f64())?,
    })
}

fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

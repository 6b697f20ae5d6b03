//! Plays a scene: starts the processes, shows their events as they happen, and records them.

use super::picture::format_duration;
use super::processes::{AgentOutput, Processes};
use super::record::{MomentKind, Record};
use super::scenes::{Pace, Scene, SceneKind, TOOL_LOG_FILE};
use super::view::View;
use crate::output::run_view::one_line;
use anyhow::{Context, bail};
use outlast_engine::Clock;
use outlast_engine::clock::WallClock;
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Body, Event};
use outlast_kernel::time::millis;
use std::io::Write;
use std::num::NonZeroU32;
use std::time::Duration;

/// The interval at which the status line is repainted, in real time.
const REFRESH_INTERVAL: Duration = Duration::from_millis(100);
/// The longest time without output of an agent, except in a wait.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// A wait from this length on is shown with the time of day.
const LONG_WAIT: Duration = Duration::from_secs(600);
/// The width of the bar of a wait.
const BAR_WIDTH: u32 = 20;

pub(super) struct Player<'a, Out: Write> {
    processes: &'a mut Processes,
    view: &'a mut View<Out>,
    pace: Pace,
}

/// A scene while it is played.
struct SceneRun {
    clock: WallClock,
    /// The time of day and the agent's time at the beginning.
    clock_start: (jiff::Zoned, Timestamp),
    record: Record,
    wait: Option<Wait>,
    /// The text of the answer that is not shown yet.
    pending_text: String,
    tool: String,
}

#[derive(Clone, Copy)]
struct Wait {
    since: Timestamp,
    until: Timestamp,
}

impl<'a, Out: Write> Player<'a, Out> {
    pub(super) fn new(processes: &'a mut Processes, view: &'a mut View<Out>, pace: Pace) -> Self {
        Self {
            processes,
            view,
            pace,
        }
    }

    /// Plays a scene, and returns what was measured.
    pub(super) async fn play(&mut self, scene: &'static Scene) -> anyhow::Result<Record> {
        let speed = self.pace.speed(scene);
        self.view.paragraph(scene.introduction)?;
        self.processes.start_provider(scene.script, speed).await?;
        self.pace.pause_for_reading(scene.introduction).await;
        let mut run = SceneRun::new(scene, speed)?;
        let time = run.time_of_day(run.clock.now());
        self.view.event(
            '·',
            &format!("it is {time}; the clock runs {speed} times as fast"),
        )?;
        match scene.kind {
            SceneKind::Answered => self.play_until_answer(scene, &mut run).await?,
            SceneKind::Killed { after, gone } => {
                self.play_with_kill(scene, &mut run, after, gone).await?
            }
            SceneKind::Refused => self.play_refusal(scene, &mut run).await?,
        }
        run.record.requests = self.processes.requests().await?.len();
        Ok(run.record)
    }

    async fn play_until_answer(&mut self, scene: &Scene, run: &mut SceneRun) -> anyhow::Result<()> {
        let mut says = self.start_agent(scene, &["--json"])?;
        self.follow(run, &mut says, None).await?;
        self.expect_success(&mut says).await
    }

    async fn play_with_kill(
        &mut self,
        scene: &Scene,
        run: &mut SceneRun,
        after: Duration,
        gone: Duration,
    ) -> anyhow::Result<()> {
        let mut says = self.start_agent(scene, &["--json"])?;
        self.follow(run, &mut says, Some(after)).await?;
        self.processes.kill_agent().await?;
        let killed = run.clock.now();
        run.record.add(killed, MomentKind::Killed);
        let time = run.time_of_day(killed);
        let left = run
            .wait
            .map_or(Duration::ZERO, |wait| wait.until.since(killed));
        self.view.event(
            '✗',
            &format!(
                "{time}: kill -9, with {} to wait; nothing of it runs now",
                format_duration(left)
            ),
        )?;
        while run.clock.now() < killed + gone {
            let time = run.time_of_day(run.clock.now());
            self.view.paint(&format!("    {time}  nothing runs"))?;
            let tick = REFRESH_INTERVAL * self.pace.speed(scene);
            let next = (run.clock.now() + tick).min(killed + gone);
            run.clock.sleep_until(next).await;
        }
        self.show_command("outlast resume")?;
        let mut says = self.processes.resume_agent(self.pace.speed(scene))?;
        self.follow(run, &mut says, None).await?;
        self.expect_success(&mut says).await?;
        let proof = std::fs::read_to_string(self.processes.file(TOOL_LOG_FILE)).unwrap_or_default();
        run.record.tool_runs = proof.lines().map(str::to_owned).collect();
        Ok(())
    }

    /// Runs the agent without `--json`: the scene is about the message that a person gets.
    async fn play_refusal(&mut self, scene: &Scene, run: &mut SceneRun) -> anyhow::Result<()> {
        let mut says = self.start_agent(scene, &[])?;
        let said = async {
            let mut lines = Vec::new();
            while let Some(line) = says.stderr.next_line().await? {
                lines.push(line);
            }
            anyhow::Ok(lines)
        };
        let said = tokio::time::timeout(SILENCE_TIMEOUT, said).await;
        let said = said.context("the agent does not end")??;
        let ended = self.processes.wait_for_agent().await?;
        for request in self.processes.requests().await? {
            run.record.add(request.time, MomentKind::RequestSent);
        }
        if !ended.success() {
            run.record.add(run.clock.now(), MomentKind::GivenUp);
        }
        for line in said {
            self.view.event('■', &one_line(&line))?;
        }
        Ok(())
    }

    fn start_agent(&mut self, scene: &Scene, more: &[&str]) -> anyhow::Result<AgentOutput> {
        self.show_command(&scene.command_line())?;
        let prompt = scene.prompt();
        let typed = [&["-p", &prompt], scene.flags, more].concat();
        self.processes.prompt_agent(&typed, self.pace.speed(scene))
    }

    fn show_command(&mut self, line: &str) -> anyhow::Result<()> {
        self.view.event('$', line)
    }

    /// Follows the agent to the end of its turn, or until a wait has lasted for `limit`.
    async fn follow(
        &mut self,
        run: &mut SceneRun,
        says: &mut AgentOutput,
        limit: Option<Duration>,
    ) -> anyhow::Result<()> {
        let mut silent_since = tokio::time::Instant::now();
        loop {
            let tick = tokio::time::sleep(REFRESH_INTERVAL);
            tokio::select! {
                line = says.stdout.next_line() => {
                    let Some(line) = line? else { return Ok(()) };
                    let event: Event = serde_json::from_str(&line).context("cannot read an event of the agent")?;
                    self.handle_event(run, &event)?;
                    silent_since = tokio::time::Instant::now();
                }
                () = tick => {}
            }
            let now = run.clock.now();
            let waited = run.wait.map(|wait| now.since(wait.since));
            if let (Some(limit), Some(waited)) = (limit, waited)
                && waited >= limit
            {
                return Ok(());
            }
            self.paint(run, now)?;
            if run.wait.is_none() && silent_since.elapsed() > SILENCE_TIMEOUT {
                bail!("the agent says nothing");
            }
        }
    }

    /// Paints the bar of a wait and the time that is left.
    fn paint(&mut self, run: &SceneRun, now: Timestamp) -> anyhow::Result<()> {
        let Some(wait) = run.wait.filter(|_| self.view.is_live()) else {
            return Ok(());
        };
        let (whole, passed) = (wait.until.since(wait.since), now.since(wait.since));
        let share = passed.as_secs_f64() / whole.as_secs_f64().max(0.001);
        let filled =
            (1..=BAR_WIDTH).filter(|cell| f64::from(*cell) <= share * f64::from(BAR_WIDTH));
        let filled = filled.count();
        let bar =
            "█".repeat(filled) + &"░".repeat(usize::try_from(BAR_WIDTH)?.saturating_sub(filled));
        let left = Duration::from_secs(millis(wait.until.since(now)).div_ceil(1000));
        let left = format_duration(left);
        let time = match whole >= LONG_WAIT {
            true => format!("{}  ", run.time_of_day(now)),
            false => String::new(),
        };
        self.view.paint(&format!("    {time}{bar}  {left} left"))
    }

    /// Records an event of the agent, and shows it.
    fn handle_event(&mut self, run: &mut SceneRun, event: &Event) -> anyhow::Result<()> {
        let time = event.time;
        match &event.body {
            Body::Start { .. } => {
                if run.record.last() == Some(MomentKind::Killed) {
                    run.record.add(time, MomentKind::Resumed);
                }
                Ok(())
            }
            Body::AttemptStarted { .. } => {
                run.wait = None;
                run.record.add(time, MomentKind::RequestSent);
                let number = run.record.count(MomentKind::RequestSent);
                let clock = run.time_of_day(time);
                let line = format!("{clock}: asks the provider (request {number})");
                self.view.event('▲', &line)
            }
            Body::RetryScheduled {
                retry_at,
                cause,
                code,
                ..
            } => {
                let code = code.as_deref().map(|code| format!(" ({})", one_line(code)));
                let reason = cause.phrase().to_owned() + &code.unwrap_or_default();
                self.start_wait(run, &reason, time, *retry_at)
            }
            // The text before a tool call is no part of the answer.
            Body::ToolCall(call) => {
                run.record.text.clear();
                run.pending_text.clear();
                run.tool = format!("{} {}", call.name, call.arguments);
                Ok(())
            }
            Body::ToolStarted { .. } => {
                run.record.add(time, MomentKind::ToolStarted);
                let line = format!("runs its tool: {}", one_line(&run.tool));
                self.view.event('●', &line)
            }
            Body::TextDelta { text } => {
                run.record.text += text;
                run.pending_text += text;
                Ok(())
            }
            Body::Retracted { .. } => {
                run.record.text.clear();
                Ok(())
            }
            Body::Done { .. } => {
                run.record.add(time, MomentKind::Answered);
                self.show_pending_text(run, '✓')
            }
            Body::Error { message, .. } => {
                run.record.add(time, MomentKind::GivenUp);
                self.view.event('■', &one_line(message))
            }
            _ => Ok(()),
        }
    }

    /// Records a wait, and shows its reason and its end.
    fn start_wait(
        &mut self,
        run: &mut SceneRun,
        reason: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> anyhow::Result<()> {
        run.record.add_wait(now, until);
        self.show_pending_text(run, '✂')?;
        let (left, clock) = (format_duration(until.since(now)), run.time_of_day(until));
        let rest = if run.wait.is_some() { "the rest, " } else { "" };
        // A wait that another process resumes began when it began.
        let since = run.wait.map_or(now, |wait| wait.since);
        run.wait = Some(Wait { since, until });
        let line = format!("{reason}: waits {rest}{left}, until {clock}");
        self.view.event('⚠', &line)
    }

    /// Shows the pending text of the answer.
    fn show_pending_text(&mut self, run: &mut SceneRun, mark: char) -> anyhow::Result<()> {
        let said = std::mem::take(&mut run.pending_text);
        let said = one_line(&said);
        if said.is_empty() {
            return Ok(());
        }
        let before = if run.record.count(MomentKind::AnswerBroken) > 0 {
            "… "
        } else {
            ""
        };
        match mark {
            '✂' => self.view.event(mark, &format!("“{said} … (cut off)")),
            _ => self.view.event(mark, &format!("“{before}{said}”")),
        }
    }

    /// Checks that an agent whose output has ended exits successfully.
    async fn expect_success(&mut self, says: &mut AgentOutput) -> anyhow::Result<()> {
        let ended = self.processes.wait_for_agent().await?;
        if ended.success() {
            return Ok(());
        }
        let why = tokio::time::timeout(SILENCE_TIMEOUT, says.stderr.next_line()).await??;
        bail!(
            "the agent ended with {ended}: {}",
            one_line(&why.unwrap_or_default())
        )
    }
}

impl SceneRun {
    fn new(scene: &'static Scene, speed: u32) -> anyhow::Result<Self> {
        let scale = NonZeroU32::new(speed).context("the clock stands still")?;
        let clock = WallClock::scaled(scale).context("the clock runs too fast")?;
        let now = WallClock::default().now();
        let now = i64::try_from(now.as_millis())?;
        let now = jiff::Timestamp::from_millisecond(now)?.to_zoned(jiff::tz::TimeZone::system());
        Ok(Self {
            clock,
            clock_start: (now, clock.now()),
            record: Record::new(scene),
            wait: None,
            pending_text: String::new(),
            tool: String::new(),
        })
    }

    /// Returns the time of day of a clock that was right when the scene began and runs as fast as the agent's.
    fn time_of_day(&self, at: Timestamp) -> String {
        let (start, began) = &self.clock_start;
        let shown = start.checked_add(at.since(*began));
        shown.map_or_else(
            |_| at.to_string(),
            |time| time.strftime("%H:%M:%S").to_string(),
        )
    }
}

//! Plays a scene: starts the processes, tells what they say as it happens, and takes note of it.

use crate::commands::demo::picture::format_duration;
use crate::commands::demo::processes::{AgentOutput, Processes};
use crate::commands::demo::record::{MomentKind, Record};
use crate::commands::demo::scenes::{Pace, Scene, SceneKind, TOOL_LOG_FILE};
use crate::commands::demo::view::View;
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

/// How often what is painted is brought up to date; real time, as it is for the eye.
const REFRESH_INTERVAL: Duration = Duration::from_millis(100);
/// An agent that says nothing for so long has nothing more to say.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// From this on a wait is told with the time of day.
const LONG_WAIT: Duration = Duration::from_secs(600);
/// How wide the bar of a wait is.
const BAR_WIDTH: u32 = 20;

pub(in crate::commands::demo) struct Player<'a, Out: Write> {
    processes: &'a mut Processes,
    view: &'a mut View<Out>,
    pace: Pace,
}

/// A scene while it is played.
struct SceneRun {
    clock: WallClock,
    /// What the clock on the wall showed when the agent's showed that.
    clock_start: (jiff::Zoned, Timestamp),
    record: Record,
    wait: Option<Wait>,
    /// What was said of the answer, and not shown yet.
    pending_text: String,
    tool: String,
}

#[derive(Clone, Copy)]
struct Wait {
    since: Timestamp,
    until: Timestamp,
}

impl<'a, Out: Write> Player<'a, Out> {
    pub(in crate::commands::demo) fn new(
        processes: &'a mut Processes,
        view: &'a mut View<Out>,
        pace: Pace,
    ) -> Self {
        Self {
            processes,
            view,
            pace,
        }
    }

    pub(in crate::commands::demo) async fn play(
        &mut self,
        scene: &Scene,
    ) -> anyhow::Result<Record> {
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

    /// Without events: what is said to a person is the point.
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

    /// Follows the agent to the end of its turn, or until it has waited that long.
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

    /// What counts down, and how far it has come.
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

    fn handle_event(&mut self, run: &mut SceneRun, event: &Event) -> anyhow::Result<()> {
        let is_resumed = run.record.last() == Some(MomentKind::Killed);
        if is_resumed && matches!(event.body, Body::Start { .. }) {
            run.record.add(event.time, MomentKind::Resumed);
        }
        run.record.add_event(event.time, &event.body);
        match &event.body {
            Body::AttemptStarted { .. } => {
                run.wait = None;
                let number = run.record.count(MomentKind::RequestSent);
                let time = run.time_of_day(event.time);
                self.view.event(
                    '▲',
                    &format!("{time}: asks the provider (request {number})"),
                )
            }
            Body::RetryScheduled { retry_at, .. } => {
                self.show_pending_text(run, '✂')?;
                let line = run.describe_retry(&event.body, event.time);
                // A wait that another process takes up began when it began.
                let since = run.wait.map_or(event.time, |wait| wait.since);
                let until = *retry_at;
                run.wait = Some(Wait { since, until });
                self.view.event('⚠', &line)
            }
            Body::ToolCall(call) => {
                run.pending_text.clear();
                run.tool = format!("{} {}", call.name, call.arguments);
                Ok(())
            }
            Body::ToolStarted { .. } => {
                let line = format!("runs its tool: {}", one_line(&run.tool));
                self.view.event('●', &line)
            }
            Body::TextDelta { text } => {
                run.pending_text += text;
                Ok(())
            }
            Body::Done { .. } => self.show_pending_text(run, '✓'),
            Body::Error { message, .. } => self.view.event('■', &one_line(message)),
            _ => Ok(()),
        }
    }

    /// Shows what the answer has had to say since the last time; the mark tells why just now.
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

    /// Makes sure that an agent that has said everything has ended well.
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
    fn new(scene: &Scene, speed: u32) -> anyhow::Result<Self> {
        let scale = NonZeroU32::new(speed).context("the clock stands still")?;
        let clock = WallClock::scaled(scale).context("the clock runs too fast")?;
        let now = WallClock::default().now();
        let now = i64::try_from(now.as_millis())?;
        let now = jiff::Timestamp::from_millisecond(now)?.to_zoned(jiff::tz::TimeZone::system());
        Ok(Self {
            clock,
            clock_start: (now, clock.now()),
            record: Record::new(scene.name, scene.answer),
            wait: None,
            pending_text: String::new(),
            tool: String::new(),
        })
    }

    /// What a clock would show that was right when the scene began, and runs as fast as the agent's.
    fn time_of_day(&self, at: Timestamp) -> String {
        let (start, began) = &self.clock_start;
        let shown = start.checked_add(at.since(*began));
        shown.map_or_else(
            |_| at.to_string(),
            |time| time.strftime("%H:%M:%S").to_string(),
        )
    }

    /// What went wrong, and until when is waited.
    fn describe_retry(&self, body: &Body, now: Timestamp) -> String {
        let Body::RetryScheduled {
            retry_at,
            cause,
            code,
            ..
        } = body
        else {
            return String::new();
        };
        let code = code
            .as_ref()
            .map_or(String::new(), |code| format!(" ({})", one_line(code)));
        let (phrase, left) = (cause.phrase(), format_duration(retry_at.since(now)));
        let time = self.time_of_day(*retry_at);
        let rest = if self.wait.is_some() {
            "the rest, "
        } else {
            ""
        };
        format!("{phrase}{code}: waits {rest}{left}, until {time}")
    }
}

//! The chat on a terminal: keys in, frames out.
//!
//! Invariants: frames are drawn when something has changed, and no more often than a person sees; while nothing happens
//! nothing is done.

use super::chat::{Chat, Input};
use super::device::Device;
use super::driver::{Driver, Flow, LeaveSummary};
use super::theme::Theme;
use super::transcript::Tone;
use super::view;
use crate::args::SessionArguments;
use crate::output::diagnostics::{self, Capture};
use crate::platform::signals::{Signal, SignalStream};
use crossterm::event::{Event, EventStream, MouseButton, MouseEventKind};
use futures_util::StreamExt;
use outlast_engine::Clock;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// As often as a frame is worth drawing.
const FRAME_INTERVAL: Duration = Duration::from_millis(16);
/// As often as a countdown is looked at.
const TICK_INTERVAL: Duration = Duration::from_millis(100);
/// Lines that the wheel moves by.
const WHEEL_LINES: isize = 3;

struct ChatScreen {
    device: Device,
    theme: Theme,
    chat: Chat,
    driver: Driver,
    complaints: Capture,
    drawn: Instant,
    is_stale: bool,
}

/// Chats until the user leaves or a signal comes; then, what is left of the session.
pub(super) async fn run(
    choice: SessionArguments,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<(Option<Signal>, LeaveSummary)> {
    let no_color = std::env::var_os("NO_COLOR");
    let mut screen = ChatScreen {
        device: Device::take()?,
        theme: Theme::from_environment(no_color.as_deref()),
        chat: Chat::new(),
        complaints: diagnostics::take(),
        driver: Driver::new(choice, clock),
        drawn: Instant::now(),
        is_stale: true,
    };
    screen.draw()?;
    screen.driver.start();
    let signal = screen.chat_on().await;
    // What went wrong is said on the terminal as it was before.
    let ChatScreen {
        device,
        complaints,
        mut driver,
        ..
    } = screen;
    drop(device);
    drop(complaints);
    let signal = signal?;
    Ok((signal, driver.leave(signal).await))
}

impl ChatScreen {
    /// Until the user leaves, or the signal that ends it.
    async fn chat_on(&mut self) -> anyhow::Result<Option<Signal>> {
        let mut keys = EventStream::new();
        let mut signals = SignalStream::new().and_quit();
        let mut ticks = tokio::time::interval(TICK_INTERVAL);
        loop {
            let frame = self.drawn + FRAME_INTERVAL;
            // Whatever comes in without an end, it is seen.
            if self.is_stale && Instant::now() >= frame {
                self.draw()?;
                continue;
            }
            let next = tokio::select! {
                biased;
                signal = signals.next() => return Ok(Some(signal)),
                key = keys.next() => match key {
                    Some(Ok(event)) => self.event(event),
                    // The terminal is gone.
                    Some(Err(_)) | None => return Ok(Some(Signal::HangUp)),
                },
                message = self.driver.next() => self.driver.take_all(message, &mut self.chat)?,
                line = self.complaints.next() => self.complain(line),
                () = tokio::time::sleep_until(frame), if self.is_stale => {
                    self.draw()?;
                    continue;
                }
                _ = ticks.tick(), if self.chat.moves() => Flow::GoOn,
            };
            self.is_stale = true;
            match next {
                Flow::GoOn => {}
                Flow::Quit => return Ok(None),
                Flow::Redraw => self.device.terminal.clear()?,
                Flow::Suspend => self.device.suspend()?,
            }
        }
    }

    fn event(&mut self, event: Event) -> Flow {
        let input = match event {
            Event::Key(key) => Input::Key(key),
            Event::Paste(text) => Input::Pasted(text),
            Event::Mouse(mouse) => match mouse.kind {
                MouseEventKind::ScrollUp => Input::Scrolled(-WHEEL_LINES),
                MouseEventKind::ScrollDown => Input::Scrolled(WHEEL_LINES),
                MouseEventKind::Down(MouseButton::Left) => Input::Clicked(mouse.row),
                _ => return Flow::GoOn,
            },
            // A resize is seen when the next frame is drawn.
            Event::Resize(..) | Event::FocusGained | Event::FocusLost => return Flow::GoOn,
        };
        self.driver.show(input, &mut self.chat)
    }

    fn complain(&mut self, line: String) -> Flow {
        let tone = match line.starts_with("error") {
            true => Tone::Error,
            false => Tone::Warning,
        };
        self.driver.show(Input::Notice(tone, line), &mut self.chat)
    }

    fn draw(&mut self) -> anyhow::Result<()> {
        let now = self.driver.clock().now();
        self.device
            .terminal
            .draw(|frame| view::draw(frame, &mut self.chat, &self.theme, now))?;
        (self.drawn, self.is_stale) = (Instant::now(), false);
        Ok(())
    }
}

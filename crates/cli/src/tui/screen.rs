//! The chat on a terminal: reads keys and draws frames.
//!
//! Invariants: frames are drawn only after a change, and no more often than a person can see; an idle chat does no
//! work.

use super::chat::{Chat, Input};
use super::device::{Device, HangUpWatch};
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

/// Minimum time between two frames.
const FRAME_INTERVAL: Duration = Duration::from_millis(16);
/// Interval at which a countdown is updated.
const TICK_INTERVAL: Duration = Duration::from_millis(100);
/// Number of lines that one turn of the wheel scrolls.
const WHEEL_LINES: isize = 3;

struct ChatScreen {
    device: Device,
    theme: Theme,
    chat: Chat,
    driver: Driver,
    diagnostics: Capture,
    drawn_at: Instant,
    is_stale: bool,
}

/// Runs the chat until the user leaves or a signal arrives, and then closes the session.
pub(super) async fn run(
    choice: SessionArguments,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<(Option<Signal>, LeaveSummary)> {
    let no_color = std::env::var_os("NO_COLOR");
    let mut screen = ChatScreen {
        device: Device::acquire()?,
        theme: Theme::from_environment(no_color.as_deref()),
        chat: Chat::new(),
        diagnostics: diagnostics::capture(),
        driver: Driver::new(choice, clock),
        drawn_at: Instant::now(),
        is_stale: true,
    };
    screen.draw()?;
    screen.driver.start();
    let signal = screen.run_loop().await;
    // Errors are printed on the restored terminal.
    let ChatScreen {
        device,
        diagnostics,
        mut driver,
        ..
    } = screen;
    drop(device);
    drop(diagnostics);
    let signal = signal?;
    Ok((signal, driver.leave(signal).await))
}

impl ChatScreen {
    /// Runs until the user leaves, or returns the signal that ends the chat.
    async fn run_loop(&mut self) -> anyhow::Result<Option<Signal>> {
        let mut keys = EventStream::new();
        let hang_up = HangUpWatch::new();
        let mut signals = SignalStream::new().with_quit();
        let mut ticks = tokio::time::interval(TICK_INTERVAL);
        loop {
            let frame = self.drawn_at + FRAME_INTERVAL;
            // Frames are drawn even during endless input.
            if self.is_stale && Instant::now() >= frame {
                self.draw()?;
                continue;
            }
            let next = tokio::select! {
                biased;
                signal = signals.next() => return Ok(Some(signal)),
                () = hang_up.closed() => return Ok(Some(Signal::HangUp)),
                key = keys.next() => match key {
                    Some(Ok(event)) => self.event(event),
                    // The keys cannot be read.
                    Some(Err(_)) | None => return Ok(Some(Signal::HangUp)),
                },
                message = self.driver.next() => self.driver.handle_all(message, &mut self.chat)?,
                line = self.diagnostics.next() => self.show_diagnostic(line),
                () = tokio::time::sleep_until(frame), if self.is_stale => {
                    self.draw()?;
                    continue;
                }
                _ = ticks.tick(), if self.chat.is_animated() => Flow::Continue,
            };
            self.is_stale = true;
            match next {
                Flow::Continue => {}
                Flow::Quit => return Ok(None),
                Flow::Redraw => self.device.clear()?,
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
                _ => return Flow::Continue,
            },
            // The next frame uses the new size.
            Event::Resize(..) | Event::FocusGained | Event::FocusLost => return Flow::Continue,
        };
        self.driver.handle_input(input, &mut self.chat)
    }

    fn show_diagnostic(&mut self, line: String) -> Flow {
        let tone = match line.starts_with("error") {
            true => Tone::Error,
            false => Tone::Warning,
        };
        self.driver
            .handle_input(Input::Notice(tone, line), &mut self.chat)
    }

    fn draw(&mut self) -> anyhow::Result<()> {
        let now = self.driver.clock().now();
        self.device
            .terminal
            .draw(|frame| view::draw(frame, &mut self.chat, &self.theme, now))?;
        (self.drawn_at, self.is_stale) = (Instant::now(), false);
        Ok(())
    }
}

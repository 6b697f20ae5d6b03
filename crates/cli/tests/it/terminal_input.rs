//! Input that arrives together with a resize or all at once, and replies that do not arrive. The test is the terminal:
//! tmux leaves milliseconds between a key and a signal, and replies to every query.

use crate::support::{HANG_TIMEOUT, Outlast};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};

/// A chat on a pseudo-terminal that never replies to a query.
struct RawTerminal {
    chat: Child,
    keyboard: File,
    output: Receiver<Vec<u8>>,
    /// The output since the last text that was seen.
    unseen: Vec<u8>,
}

impl RawTerminal {
    /// Starts a chat and waits until it is idle.
    fn chat(outlast: &Outlast) -> Self {
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None).unwrap();
        let mut command = outlast.command(&["--model", "ok"]);
        command.env("TERM", "xterm-256color");
        let side = || Stdio::from(pty.slave.try_clone().unwrap());
        command.stdin(side()).stdout(side()).stderr(side());
        let chat = command.spawn().unwrap();
        let keyboard = File::from(pty.master);
        let mut screen = keyboard.try_clone().unwrap();
        let (sender, output) = mpsc::channel();
        // Ends with the last process on the terminal.
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(read) = screen.read(&mut piece) {
                if sender.send(piece[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        let mut terminal = Self {
            chat,
            keyboard,
            output,
            unseen: Vec::new(),
        };
        // The status line names the model once the session is there.
        terminal.sees("ok · 0 retries");
        terminal
    }

    fn write(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Tells the chat that the size has changed, as the kernel does.
    fn signal_resize(&self) {
        let process = Pid::from_raw(self.chat.id().try_into().unwrap());
        kill(process, Signal::SIGWINCH).unwrap();
    }

    /// Waits until the text is written to the screen.
    fn sees(&mut self, text: &str) {
        loop {
            let found = self
                .unseen
                .windows(text.len())
                .position(|window| window == text.as_bytes());
            if let Some(at) = found {
                self.unseen.drain(..at + text.len());
                return;
            }
            match self.output.recv_timeout(HANG_TIMEOUT) {
                Ok(piece) => self.unseen.extend(piece),
                Err(error) => panic!(
                    "no {text:?} ({error}): {:?}",
                    String::from_utf8_lossy(&self.unseen)
                ),
            }
        }
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        self.chat.kill().ok();
        self.chat.wait().ok();
    }
}

/// A reader that drops one of two ready events loses some of these keys until the next key.
#[test]
fn key_that_arrives_with_resize_takes_effect() {
    let outlast = Outlast::new();
    let mut terminal = RawTerminal::chat(&outlast);
    // A letter of its own for each key, so that each is found in the output.
    for letter in '\u{100}'..'\u{200}' {
        terminal.signal_resize();
        terminal.write(letter.encode_utf8(&mut [0; 4]));
        terminal.sees(letter.encode_utf8(&mut [0; 4]));
    }
}

/// One read takes 1024 bytes.
#[test]
fn long_input_without_bracketed_paste_arrives_whole() {
    let outlast = Outlast::new();
    let mut terminal = RawTerminal::chat(&outlast);
    terminal.write(&format!("{}Ω", "x".repeat(3000)));
    terminal.sees("Ω");
}

#[test]
fn redraw_needs_no_reply_from_terminal() {
    const CTRL_L: &str = "\u{c}";
    let outlast = Outlast::new();
    let mut terminal = RawTerminal::chat(&outlast);
    terminal.write("Ψ");
    terminal.sees("Ψ");
    terminal.write(CTRL_L);
    terminal.sees("Ψ");
    terminal.write("Ω");
    terminal.sees("Ω");
}

//! Runs a command at a pseudo-terminal.

use crate::support::HANG_TIMEOUT;
use nix::pty::openpty;
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

pub(super) struct Terminal {
    child: Child,
    keys: File,
    pieces: Receiver<String>,
    /// The output so far.
    pub(super) screen: String,
}

impl Terminal {
    /// Starts the command with stdin and stderr at the terminal; stdout goes there, too, unless it
    /// is given.
    pub(super) fn start(mut command: Command, stdout: Option<Stdio>) -> Self {
        let pair = openpty(None, None).unwrap();
        let end = || Stdio::from(pair.slave.try_clone().unwrap());
        command
            .stdin(end())
            .stderr(end())
            .stdout(stdout.unwrap_or_else(end));
        let child = command.spawn().unwrap();
        // Now only the command holds its end.
        drop((command, pair.slave));
        let keys = File::from(pair.master);
        let mut reader = keys.try_clone().unwrap();
        let (sender, pieces) = channel();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut piece) {
                let text = String::from_utf8_lossy(&piece[..read]).into_owned();
                sender.send(text).ok();
            }
        });
        Self {
            child,
            keys,
            pieces,
            screen: String::new(),
        }
    }

    pub(super) fn wait_for(&mut self, text: &str) {
        while !self.screen.contains(text) {
            let Ok(piece) = self.pieces.recv_timeout(HANG_TIMEOUT) else {
                panic!("{text:?} does not come: {}", self.screen);
            };
            self.screen += &piece;
        }
    }

    /// Returns the next output, or an empty text at the deadline.
    pub(super) fn said_within(&mut self, time: Duration) -> String {
        self.pieces.recv_timeout(time).unwrap_or_default()
    }

    pub(super) fn type_in(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Returns the exit code and all output.
    pub(super) fn ended(mut self) -> (i32, String) {
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        while let Ok(piece) = self.pieces.recv_timeout(HANG_TIMEOUT) {
            self.screen += &piece;
        }
        (code, std::mem::take(&mut self.screen))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

//! The terminal: taken over for a chat, and restored however the process ends.
//!
//! Invariant: it is restored once, by the first of these: the end of the chat, a signal, a panic.

use crossterm::event::{
    DisableBracketedPaste, EnableBracketedPaste, KeyboardEnhancementFlags,
    PopKeyboardEnhancementFlags, PushKeyboardEnhancementFlags,
};
use crossterm::style::Print;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute};
use parking_lot::{Mutex, MutexGuard};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use std::io::{self, Stdout, Write};
#[cfg(unix)]
use std::os::fd::{AsFd, OwnedFd};
use std::thread::ThreadId;
#[cfg(unix)]
use tokio::io::{Interest, unix::AsyncFd};

/// The thread whose chat owns the terminal.
static OWNER_THREAD: Mutex<Option<ThreadId>> = Mutex::new(None);

/// Reports presses and the wheel, but not movements, because there would be too many.
const MOUSE_ON: &str = "\u{1b}[?1000h\u{1b}[?1006h";
const MOUSE_OFF: &str = "\u{1b}[?1006l\u{1b}[?1000l";

/// The terminal while a chat owns it.
pub(crate) struct Device {
    pub(crate) terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Device {
    pub(crate) fn acquire() -> io::Result<Self> {
        acquire_terminal()?;
        let backend = CrosstermBackend::new(io::stdout());
        let terminal = Terminal::new(backend).inspect_err(|_| restore_terminal())?;
        Ok(Self { terminal })
    }

    /// Clears the screen, so that the next frame is drawn whole.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        // `Terminal::clear` asks the terminal for the position of the cursor and fails without a reply within 2 s.
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())
    }

    /// Returns the terminal to the shell until the user resumes the process.
    #[cfg(unix)]
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        restore_terminal();
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(0),
            nix::sys::signal::Signal::SIGTSTP,
        )?;
        // A second `Device` would restore the terminal when the first one is replaced.
        acquire_terminal()?;
        self.clear()
    }

    #[cfg(not(unix))]
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        restore_terminal();
    }
}

/// Watches for the end of the terminal, for a process that gets no signal: it ignores hang-ups, or the terminal is not
/// its controlling one. The reader of keys would poll a closed terminal forever.
#[cfg(unix)]
pub(crate) struct HangUpWatch(io::Result<AsyncFd<OwnedFd>>);

#[cfg(unix)]
impl HangUpWatch {
    /// Starts to watch stdin. Must be called within a runtime.
    pub(crate) fn new() -> Self {
        #[expect(
            deprecated,
            reason = "its replacement is unsafe; an `OwnedFd` does what that one asks for"
        )]
        let watch = |stdin| AsyncFd::with_interest(stdin, Interest::READABLE);
        Self(io::stdin().as_fd().try_clone_to_owned().and_then(watch))
    }

    /// Resolves when the terminal is gone; never, if it cannot be watched. Cancel safe.
    pub(crate) async fn closed(&self) {
        if let Ok(stdin) = &self.0 {
            while let Ok(mut guard) = stdin.readable().await {
                if guard.ready().is_read_closed() {
                    return;
                }
                // The input is left to the reader of the keys.
                guard.clear_ready();
            }
        }
        std::future::pending().await
    }
}

#[cfg(not(unix))]
pub(crate) struct HangUpWatch;

#[cfg(not(unix))]
impl HangUpWatch {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) async fn closed(&self) {
        std::future::pending().await
    }
}

fn acquire_terminal() -> io::Result<()> {
    enable_raw_mode()?;
    *owner_thread() = Some(std::thread::current().id());
    // A partial setup is undone.
    enter(&mut io::stdout()).inspect_err(|_| restore_terminal())
}

fn enter(out: &mut impl Write) -> io::Result<()> {
    execute!(
        out,
        EnterAlternateScreen,
        EnableBracketedPaste,
        PushKeyboardEnhancementFlags(KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES),
        Print(MOUSE_ON)
    )
}

fn leave(out: &mut impl Write) -> io::Result<()> {
    execute!(
        out,
        Print(MOUSE_OFF),
        PopKeyboardEnhancementFlags,
        DisableBracketedPaste,
        LeaveAlternateScreen,
        cursor::Show
    )
}

/// Whether a chat of this thread owns the terminal.
pub(crate) fn is_owned_by_this_thread() -> bool {
    *owner_thread() == Some(std::thread::current().id())
}

fn owner_thread() -> MutexGuard<'static, Option<ThreadId>> {
    OWNER_THREAD.lock()
}

/// Restores the terminal, if a chat owns it. Errors of a closed terminal are ignored.
pub(crate) fn restore_terminal() {
    if owner_thread().take().is_some() {
        leave(&mut io::stdout()).ok();
        disable_raw_mode().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leave_resets_every_terminal_mode_that_enter_sets() {
        let written = |write: fn(&mut Vec<u8>) -> io::Result<()>| {
            let mut out = Vec::new();
            write(&mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let (entered, left) = (written(enter), written(leave));
        for mode in ["?1049", "?2004", "?1000", "?1006"] {
            assert!(entered.contains(&format!("\u{1b}[{mode}h")), "{entered:?}");
            assert!(left.contains(&format!("\u{1b}[{mode}l")), "{left:?}");
        }
        assert!(entered.contains("\u{1b}[>1u") && left.contains("\u{1b}[<1u"));
        assert!(left.ends_with("\u{1b}[?25h"));
    }

    /// The environment variable that is set for the process that panics.
    const PANICS: &str = "OUTLAST_TEST_PANICS";
    const NAME: &str = "tui::device::tests::panic_restores_terminal_before_printing_error";

    /// Runs this test again on a pseudo-terminal, where it takes the terminal over and panics.
    #[cfg(unix)]
    #[test]
    fn panic_restores_terminal_before_printing_error() {
        use nix::sys::termios::{LocalFlags, tcgetattr};
        use std::io::Read;
        use std::process::{Command, Stdio};

        if std::env::var_os(PANICS).is_some() {
            std::panic::set_hook(Box::new(crate::report_panic));
            let _device = Device::acquire().unwrap();
            panic!("on purpose");
        }
        let pty = nix::pty::openpty(None, None).unwrap();
        let slave = || Stdio::from(pty.slave.try_clone().unwrap());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture", "--test-threads=1"])
            .env(PANICS, "1")
            .env("TERM", "xterm-256color")
            .stdin(slave())
            .stdout(slave())
            .stderr(slave())
            .spawn()
            .unwrap();
        let mut master = std::fs::File::from(pty.master);
        let (mut said, mut piece) = (Vec::new(), [0; 4096]);
        let told = "error: this is a bug in outlast";
        while !String::from_utf8_lossy(&said).contains(told) {
            let read = master.read(&mut piece).unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&said));
            said.extend_from_slice(&piece[..read]);
        }
        assert!(!child.wait().unwrap().success());
        let said = String::from_utf8_lossy(&said);
        let at = |text: &str| said.find(text).unwrap_or_else(|| panic!("{said:?}"));
        assert!(at("\u{1b}[?1049h") < at("\u{1b}[?1049l"));
        assert!(at("\u{1b}[?1049l") < at(told));
        let modes = tcgetattr(&pty.slave).unwrap().local_flags;
        assert!(modes.contains(LocalFlags::ICANON | LocalFlags::ECHO));
    }
}

//! The `outlast` command from outside: real processes, real files, a clock that is sped up.

mod architecture;
mod command_line;
mod interrupts;
mod policies;
mod support;

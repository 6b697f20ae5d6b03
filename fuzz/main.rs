//! Runs one fuzz target with libFuzzer: the one that the variable `FUZZ_TARGET` names.
#![no_main]

mod targets;

use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;
use targets::Target;

static TARGET: OnceLock<Target> = OnceLock::new();

fn chosen() -> Target {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let found = targets::TARGETS.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("FUZZ_TARGET is `{name}`, which is no fuzz target; set it to the name of a file in fuzz/targets")).1
}

fuzz_target!(|input: &[u8]| TARGET.get_or_init(chosen)(input));

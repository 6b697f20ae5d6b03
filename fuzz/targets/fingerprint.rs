//! Fingerprints and messages: bounded for any text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use outlast_kernel::fingerprint::Fingerprint;
use outlast_kernel::text;
use outlast_kernel::verdict::Class;

fuzz_target!(|message: &str| {
    let fingerprint = Fingerprint::new("step", Class::TestFailure, message);
    assert!(fingerprint.message().len() <= 512);
    assert!(text::message(message).len() <= text::MESSAGE_LIMIT);
    text::plain(message);
});

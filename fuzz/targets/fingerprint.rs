//! Fingerprints and messages: bounded for any text.

use outlast_kernel::fingerprint::Fingerprint;
use outlast_kernel::text;
use outlast_kernel::verdict::Class;

pub(super) fn run(message: &str) {
    let fingerprint = Fingerprint::new("step", Class::TestFailure, message);
    assert!(fingerprint.message().len() <= 512);
    assert!(text::sanitized_message(message).len() <= text::MAX_MESSAGE_BYTES);
    text::plain(message);
}

//! Messages: any text is judged, at any time and in any zone, and none makes a terminal 4xx retryable.

use outlast_kernel::Timestamp;
use outlast_kernel::classify::classify;
use outlast_kernel::failure::Failure;
use outlast_kernel::verdict::Class;

pub(super) fn run(at: u64, offset: i16, message: &str) {
    let mut failure = Failure::thrown("p", message, Timestamp::from_millis(at));
    failure.local_offset_minutes = offset;
    classify(&failure);
    failure.status = Some(400);
    assert_ne!(classify(&failure).class(), Class::Transient);
}

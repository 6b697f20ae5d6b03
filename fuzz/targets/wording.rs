//! Messages: any text is judged, at any time and in any zone, and none makes a terminal 4xx retryable.
#![no_main]

use libfuzzer_sys::fuzz_target;
use outlast_kernel::Timestamp;
use outlast_kernel::classify::classify;
use outlast_kernel::failure::Failure;
use outlast_kernel::verdict::Class;

fuzz_target!(|input: (u64, i16, &str)| {
    let (at, offset, message) = input;
    let mut failure = Failure::thrown("p", message, Timestamp::from_millis(at));
    failure.local_offset_minutes = offset;
    classify(&failure);
    failure.status = Some(400);
    assert_ne!(classify(&failure).class(), Class::Transient);
});

//! Error bodies: any text is read and judged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use outlast_dialect::error_body::{Seen, read};
use outlast_kernel::Timestamp;
use outlast_kernel::classify::classify;
use outlast_kernel::failure::Transport;

fuzz_target!(|body: &str| {
    let at = Timestamp::from_millis(1_800_000_000_000);
    for (transport, status) in [(Transport::Http, Some(429)), (Transport::Stream, Some(200)), (Transport::Thrown, None)] {
        classify(&read(Seen { provider: "p", transport, status, headers: &[], body, at }));
    }
});

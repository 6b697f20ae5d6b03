//! Error bodies: any text is read and judged, and none makes a terminal 4xx retryable.

use outlast_dialect::error_body::{RawError, parse};
use outlast_kernel::Timestamp;
use outlast_kernel::classify::classify;
use outlast_kernel::failure::Transport;
use outlast_kernel::verdict::Class;

pub(super) fn run(body: &str) {
    let at = Timestamp::from_millis(1_800_000_000_000);
    for (transport, status) in [
        (Transport::Http, Some(429)),
        (Transport::Stream, Some(200)),
        (Transport::Thrown, None),
    ] {
        classify(&parse(RawError {
            provider: "p",
            transport,
            status,
            headers: &[],
            body,
            at,
        }));
    }
    let seen = RawError {
        provider: "p",
        transport: Transport::Http,
        status: Some(422),
        headers: &[],
        body,
        at,
    };
    assert_ne!(classify(&parse(seen)).class(), Class::Transient);
}

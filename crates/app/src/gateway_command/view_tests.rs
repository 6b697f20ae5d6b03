use super::*;
use std::net::SocketAddr;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn at(seconds: i64) -> String {
    let millis = 1_800_000_000_000_i64 + seconds * 1000;
    Timestamp::from_millis(u64::try_from(millis).unwrap()).to_string()
}

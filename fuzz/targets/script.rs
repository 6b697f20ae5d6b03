//! Scripts of the scripted provider, and requests to it: any text is a script or an error, a script can be played, and
//! any request gets a response in every dialect.

use outlast_dialect::Dialect;
use outlast_engine::Transport;
use outlast_engine::clock::WallClock;
use outlast_engine::transport::{Method, Request};
use outlast_kernel::Timestamp;
use outlast_mock::{Script, ScriptedTransport};
use std::sync::Arc;

pub(super) fn run(text: &str) {
    let (first, body) = text.split_once('\n').unwrap_or((text, text));
    let script = match first.parse::<Script>() {
        Ok(mut script) => {
            for second in 0..20 {
                script.next_reply(Timestamp::from_millis(second * 1000), &[0; 100]);
            }
            first.parse()
        }
        Err(_) => "ok:tools+ok:image-seen".parse(),
    };
    let scripted = ScriptedTransport::new(script.unwrap(), Arc::new(WallClock::default()));
    for dialect in Dialect::ALL {
        // The response is chosen before the future is polled.
        drop(scripted.send(Request {
            method: Method::Post,
            path: dialect.path().to_owned(),
            headers: Vec::new(),
            body: body.to_owned().into(),
        }));
    }
}

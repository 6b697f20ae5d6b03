//! Scripts of the scripted provider, and what is asked of it: any text is a script or an error, a script can be played,
//! and whatever comes as a request is answered in every dialect.

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
                script.reply(Timestamp::from_millis(second * 1000), 100);
            }
            first.parse()
        }
        Err(_) => "ok:tools+ok:image-seen".parse(),
    };
    let scripted = ScriptedTransport::new(script.unwrap(), Arc::new(WallClock::default()));
    for dialect in Dialect::ALL {
        // What is to be sent is decided before anybody waits for it.
        drop(scripted.send(Request {
            method: Method::Post,
            path: dialect.path().to_owned(),
            headers: Vec::new(),
            body: body.to_owned().into(),
        }));
    }
}

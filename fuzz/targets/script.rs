//! Scripts of the scripted provider: any text is a script or an error, and a script can be played.
#![no_main]

use libfuzzer_sys::fuzz_target;
use outlast_kernel::Timestamp;
use outlast_mock::Script;

fuzz_target!(|text: &str| {
    if let Ok(mut script) = text.parse::<Script>() {
        for second in 0..20 {
            script.reply(Timestamp::from_millis(second * 1000), 100);
        }
    }
});

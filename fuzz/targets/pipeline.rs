//! Pipelines: any text is a pipeline, which can be drawn, or faults that stay within the text and on their lines.

use outlast_pipeline::{file, plan};
use std::path::Path;

pub(super) fn run(text: &str) {
    // No schema is there to be read.
    match file::read(text, Path::new("/nowhere/p.yaml")) {
        Ok(pipeline) => assert!(plan::plan(&pipeline).ends_with("└ end\n")),
        Err(faults) => {
            let lines = text.matches(['\n', '\r']).count() + 1;
            assert!(!faults.list.is_empty());
            assert!(faults.list.iter().all(|fault| fault.line as usize <= lines));
            assert!(
                faults
                    .list
                    .iter()
                    .all(|fault| !fault.message.contains(['\n', '\u{1b}']))
            );
        }
    }
}

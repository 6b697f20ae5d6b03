//! Pipelines: any text is a pipeline that can be drawn, or has faults whose positions lie within the text and on their
//! lines.

use outlast_pipeline::{file, plan};
use std::path::Path;

pub(super) fn run(text: &str) {
    // The path of the file refers to no schema that could be read.
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

//! stub
use super::definition::Agent;
use super::watchdog::Sign;
use outlast_kernel::budget::Cost;
use outlast_kernel::event::Usage;
pub(crate) struct Invocation {
    pub(crate) program: Vec<String>,
    pub(crate) input: Option<Vec<u8>>,
    pub(crate) reader: Reader,
}
pub(crate) struct Reader;
impl Reader {
    pub(crate) fn push(&mut self, _: &[u8]) -> Vec<Sign> {
        vec![]
    }
    pub(crate) fn finish(self) -> Answer {
        Answer {
            text: String::new(),
            usage: Usage::default(),
            cost: Cost::default(),
            error: None,
        }
    }
}
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) usage: Usage,
    pub(crate) cost: Cost,
    pub(crate) error: Option<String>,
}
pub(crate) fn invocation(_a: &Agent, _p: &str, _f: &std::path::Path) -> Invocation {
    Invocation {
        program: vec![],
        input: None,
        reader: Reader,
    }
}

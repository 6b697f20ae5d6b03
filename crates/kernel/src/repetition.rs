//! Stub.
use crate::event::ToolCall;
#[derive(Debug, Default)]
pub struct Guard;
#[derive(Debug)]
pub struct Loop;
impl Guard {
    pub fn push(&mut self, _: &str) -> Option<Loop> {
        None
    }
}
#[derive(Debug, Default)]
pub struct Calls;
impl Calls {
    pub fn after(&mut self, _: &[(&ToolCall, &str)]) -> u32 {
        0
    }
}

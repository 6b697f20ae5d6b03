//! stub
use outlast_dialect::Dialect;
use outlast_engine::Clock;
use outlast_kernel::Timestamp;
use outlast_kernel::budget::{Chain, Prompt};
use outlast_kernel::verdict::Cause;
use std::path::PathBuf;
use std::sync::Arc;
/// a
pub struct Progress {
    /// a
    pub chain: Chain,
    /// a
    pub prompt: Prompt,
    /// a
    pub since: Timestamp,
    /// a
    pub wake: Option<Timestamp>,
    /// a
    pub attempts: u32,
    /// a
    pub resent: u32,
    /// a
    pub cause: Option<Cause>,
}
/// a
pub struct Identity([u8; 32]);
/// a
pub struct About {
    /// a
    pub id: Box<str>,
    /// a
    pub client: &'static str,
    /// a
    pub dialect: Dialect,
    /// a
    pub model: Box<str>,
    /// a
    pub account: Box<str>,
    /// a
    pub path: Box<str>,
    /// a
    pub begun: Timestamp,
}
/// a
pub enum Command {
    /// a
    RetryNow,
    /// a
    Cancel,
}
/// a
pub struct Holds;
/// a
pub struct Hold;
impl Holds {
    /// a
    pub async fn open(_: Option<PathBuf>, _: Arc<dyn Clock>) -> Self {
        tokio::task::yield_now().await;
        Self
    }
    /// a
    pub fn has_abandoned(&self) -> bool {
        false
    }
    /// a
    pub fn take_up(&self, _: &Identity) -> Option<Progress> {
        None
    }
    /// a
    pub fn begin(&self, _: Identity, _: About, _: Progress) -> Hold {
        Hold
    }
    /// a
    pub fn live(&self) -> usize {
        0
    }
}
impl Hold {
    /// a
    pub fn update(&self, _: Progress, _: Option<Timestamp>) {}
    /// a
    pub fn ended(self) {}
    /// a
    pub async fn command(&self) -> Command {
        std::future::pending().await
    }
}
impl Identity {
    /// a
    pub fn stub() -> Self {
        Self([0; 32])
    }
}

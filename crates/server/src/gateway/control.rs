//! stub
/// a
pub struct Response {
    /// a
    pub status: u16,
    /// a
    pub content_type: &'static str,
    /// a
    pub headers: http::HeaderMap,
    /// a
    pub body: String,
}
/// a
pub fn is_ours(path: &str) -> bool {
    path.starts_with("/_outlast/")
}
/// a
pub async fn answer<T>(_: &T, _: &http::request::Parts, _: &[u8]) -> Response {
    tokio::task::yield_now().await;
    Response {
        status: 404,
        content_type: "application/json",
        headers: http::HeaderMap::new(),
        body: String::new(),
    }
}

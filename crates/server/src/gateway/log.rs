//! What is said of each request.

//! Requests that are held, and those whose client has left.

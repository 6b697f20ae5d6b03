//! The waits of a gateway.

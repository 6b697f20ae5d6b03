//! The HTTP/1 server of the gateway: hyper parses requests, this module writes responses, because hyper cannot send
//! interim responses.

pub(crate) mod listener;
pub(crate) mod request_reader;
pub(crate) mod response_writer;
pub(crate) mod socket;

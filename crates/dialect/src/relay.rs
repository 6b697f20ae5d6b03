//! One streamed answer on its way through a proxy.

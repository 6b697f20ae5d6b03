//! Who the client is, and what keeps it alive through a long wait.

//! Tests of clients and providers that do everything wrong, by mistake or not: each gets a clear refusal or a closed
//! connection, nothing is buffered without bounds, no client gets another client's data, and the next request is
//! served.

mod bodies;
mod crossing;
mod heads;
mod providers;
mod slow;
mod smuggling;

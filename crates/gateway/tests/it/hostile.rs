//! Clients and providers that do everything wrong, by mistake or not: each gets a clear refusal or a closed connection,
//! nothing is kept without bounds, nobody gets what is somebody else's, and whoever comes next is served.

mod bodies;
mod crossing;
mod heads;
mod providers;
mod slow;
mod smuggling;

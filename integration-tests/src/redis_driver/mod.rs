//! Client libraries of Redis Cluster from other projects, each driven by a script that executes requests of a test.

mod driver;
mod library;
mod reply;

pub use driver::Driver;
pub use library::{Credentials, Library};
pub use reply::Reply;

//! Bounds on what one caller can occupy: connections, calls, unread bytes, and reports of refusals.

pub(crate) mod call_quota;
pub mod connection_limit;
mod refusal_limit;
pub(crate) mod refusals;
pub(crate) mod unread;

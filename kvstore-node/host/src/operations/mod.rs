//! Client operations: evaluated, forwarded, parked until a leadership settles, and answered.

mod expire;
pub(crate) mod forward;
mod operate;
pub(crate) mod park;
pub(crate) mod park_limits;
pub(crate) mod refusal;
mod remember;
pub(crate) mod request;
pub(crate) mod snapshot;
pub(crate) mod stale;
pub(crate) mod waiting_clients;

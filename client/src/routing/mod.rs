//! Routing: the cached partition table, the owners of partitions, and the endpoints of clients without routing.

pub(crate) mod forwarders;
pub(crate) mod owners;
pub(crate) mod routes;
pub(crate) mod table;

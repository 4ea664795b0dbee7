//! Messages between members and coordinators: sessions, heartbeats, reports, duties, and pushes.

pub mod beat_proofs;
pub mod beats;
pub mod control;
pub mod duties;
pub mod load;
mod over;
mod removed;
pub mod report;
pub mod report_proofs;
pub mod revocations;
pub mod session;

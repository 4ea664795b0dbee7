//! Copies of partitions on this node: duties, opening and deletion, pulls from leaders, and kept log.

pub(crate) mod applied_push;
pub(crate) mod copy_view;
pub(crate) mod copying;
mod duty;
pub(crate) mod local_copy;
pub(crate) mod log_replay;
pub(crate) mod pages;
mod pull;
pub(crate) mod reconcile;
pub(crate) mod reset_report;
pub(crate) mod retention;
pub(crate) mod unreadable;
pub(crate) mod unreadable_copy;

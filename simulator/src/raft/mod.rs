//! Raft as far as its members matter: each coordinator's own log, terms and votes, and majorities of whoever the last entry about the
//! members names, of both sets while they change (Ongaro 2014, §3 and §4). openraft itself runs in the coordinator's own tests.
//!
//! All of it is pure: what a member is told, and what it says then. Logs are whole: there are no snapshots of them.

mod disk;
mod entry;
mod lead;
mod membership;
mod message;
mod voter;
#[cfg(test)]
mod voter_tests;

pub(crate) use disk::Disk;
pub(crate) use entry::{Entry, What};
pub(crate) use membership::Membership;
pub(crate) use message::{Body, Message};
pub(crate) use voter::{Role, Voter};

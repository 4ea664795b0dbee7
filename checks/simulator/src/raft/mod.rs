//! Raft with changing members: each coordinator's own log, terms and votes, and majorities of the members in the last
//! entry about them, of both sets during a change (Ongaro 2014, §3 and §4). openraft itself runs in the coordinator's
//! own tests.
//!
//! All of it is pure: input messages, and resulting messages. Logs are whole: there are no snapshots.

mod disk;
mod entry;
mod lead;
mod membership;
mod message;
mod voter;
#[cfg(test)]
mod voter_tests;

pub(crate) use disk::Disk;
pub(crate) use entry::{Entry, EntryContent};
pub(crate) use membership::Membership;
pub(crate) use message::{Body, Message};
pub(crate) use voter::{Role, Voter};

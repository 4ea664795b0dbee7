//! Operators during a run: lost copies, members of the quorum, tables, recovery, and upgrades.

pub(crate) mod changer;
mod drops;
pub(crate) mod operator;
pub(crate) mod parts;
pub(crate) mod recovery;
pub(crate) mod upgrade;

//! Lease tables: partitions without data that only record their owner. A lease's only copy stands on its owner and is
//! Live from the start, since it holds nothing. Epochs, leases, withdrawal, former owners and hand-overs are those of
//! every partition (PROTOCOL rules 12 to 16). Differences:
//!
//! - Any participant that serves the table may own a partition next, not only one that has a copy ([`Owners`]).
//! - A move begins with the next owner's placement in the row, Live at once; then the present owner is ordered to hand
//!   over. The new leadership and the end of the old placement are one commit ([`take_over`]).
//! - Leaderships that operators end are requested first ([`hands_over`]), and withdrawn only if not released in time.
//! - A table keeps itself even, with few moves, as participants come and go ([`lease_moves`]).

mod churn;
pub(crate) mod hand_over;
mod lease_moves;
mod owners;
pub(crate) mod served_tables;
mod staying;

pub(crate) use churn::{BalanceInputs, Churn};
pub(crate) use lease_moves::lease_moves;
pub(crate) use owners::Owners;
pub(crate) use staying::Successors;
pub use staying::staying_leases;

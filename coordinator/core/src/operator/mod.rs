//! Advance checks of operators' verbs on nodes and partitions: each returns the effect or the obstacles. Pure; the
//! resulting commands are in the table at the head of `command`.

mod access;
mod alter;
mod attempts;
pub(crate) mod cancel;
mod configure;
pub(crate) mod countdowns;
mod force;
mod maintain;
mod nodes;
pub(crate) mod obstacle;
mod order;
mod quorum;
mod recovery;

pub(crate) use crate::ranges::common_checks::hashed;
pub(crate) use crate::ranges::merge_checks::too_large;
pub use crate::ranges::merge_checks::{MergePlan, check_cancel_merge, check_merge};
pub use crate::ranges::split_checks::{SplitPlan, check_cancel_split, check_split, check_splittable};
pub(crate) use access::check_weight_max;
pub use access::{AccessChange, RefusedCertificates, check_access, check_withdrawal};
pub use alter::{NodeAlteration, check_alter_node, check_alter_table, check_nodes_for};
pub use attempts::Attempt;
pub use configure::{Configuration, ConfigureError, check_configure};
pub use force::{ForcedElection, check_force_leader};
pub use maintain::still_led;
pub use nodes::{DrainPlan, LossPlan, RemovalPlan, check_drain, check_lose_node, check_remove};
pub use order::check_order;
pub use quorum::{QuorumRefusal, check_cancel_quorum_change, check_join, check_quorum_change};
pub use recovery::{SettleRefusal, check_settle, check_take_over};

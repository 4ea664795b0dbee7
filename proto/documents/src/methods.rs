//! The table of administrative methods: request, answer, effect, rights and commands of each.
//!
//! Two calls of the same service are no rows, because they carry no documents:
//! - `SnapshotQuorum` answers with a stream of the bytes of a file.
//! - `JoinQuorum` is a call between members of different versions during an upgrade, and its answer holds the key of the quorum.
//!
//! `archon_security::rights` has their roles.

use crate::method::{Callers, Document, Effect, Method, MethodCall};
use crate::{access, codec, nodes, orders, partitions, quorum, rebalance, settings, status, tables, upgrade};

/// The gRPC service of the methods.
pub const SERVICE: &str = "archon.v1.Admin";

macro_rules! methods {
    ($dollar:tt $($name:literal: $module:ident::$request:ident => $answer:ident, $effect:ident, $callers:ident, $commands:literal;)+) => {
        /// Every method.
        pub const METHODS: &[&Method] = &[$(<$module::$request as MethodCall>::METHOD,)+];

        $(impl MethodCall for $module::$request {
            type Answer = $module::$answer;
            const METHOD: &'static Method = &Method {
                name: $name,
                path: concat!("/archon.v1.Admin/", $name),
                callers: Callers::$callers,
                effect: Effect::$effect,
                commands: $commands,
                request_bytes_max: <$module::$request as Document>::BYTES_MAX,
                rewrite: codec::rewrite::<$module::$request>,
            };
        })+

        /// Calls a macro with the request type of every method.
        #[macro_export]
        macro_rules! for_each_request {
            ($dollar callback:ident) => {
                $dollar callback! { $($crate::$request,)+ }
            };
        }

        /// Schemas of each method's request and answer.
        #[cfg(test)]
        pub(crate) fn schemas(generator: &mut schemars::SchemaGenerator) -> Vec<(&'static Method, [schemars::Schema; 2])> {
            vec![$((
                <$module::$request as MethodCall>::METHOD,
                [generator.subschema_for::<$module::$request>(), generator.subschema_for::<$module::$answer>()],
            ),)+]
        }
    };
}

methods! {
    $
    "Status": status::ShowStatus => Status, Reads, Readers, "status";
    "Check": orders::CheckCluster => Check, Reads, Readers, "check";
    "Explain": status::Explain => ReasonList, Reads, Readers, "partition list";
    "Events": status::ListEvents => EventList, Reads, Readers, "events";
    "ListNodes": nodes::ListNodes => NodeList, Reads, Readers, "node list";
    "SetNode": nodes::SetNode => NodeSet, Writes, Admins, "node cordon|uncordon|drain|undrain";
    "AlterNode": nodes::AlterNode => NodeAltered, Writes, Admins, "node set";
    "CheckNode": nodes::CheckNode => NodeCheck, Reads, Readers, "node drain|remove|lost";
    "RemoveNode": nodes::RemoveNode => NodeRemoved, Writes, Admins, "node remove";
    "LoseNode": nodes::LoseNode => NodeLoss, Writes, Admins, "node lost";
    "DescribePartition": partitions::DescribePartition => PartitionDescription, Reads, Readers, "partition describe";
    "ForceLeader": partitions::ForceLeader => ForcedLeader, Writes, Admins, "partition force-leader";
    "Order": orders::GiveOrder => OrderGiven, Writes, Admins,
        "partition bump|offline|online|bar|unbar, node maintain|resume|bar|unbar";
    "SplitPartition": partitions::SplitPartition => SplitAnswer, Writes, Admins, "partition split";
    "MergePartition": partitions::MergePartition => PartitionMerge, Writes, Admins, "partition merge";
    "ListTables": tables::ListTables => Tables, Reads, Readers, "table list";
    "CreateTable": tables::CreateTable => TableSummary, Writes, Admins, "table create";
    "AlterTable": tables::AlterTable => TableAltered, Writes, Admins, "table alter";
    "CheckTable": tables::CheckTable => TableCheck, Reads, Readers, "table drop";
    "DescribeTable": tables::DescribeTable => TableDescription, Reads, Readers, "table describe";
    "DropTable": tables::DropTable => TableDropped, Writes, Admins, "table drop";
    "PlanRebalance": rebalance::PlanRebalance => Plan, Reads, Readers, "rebalance plan";
    "ApplyPlan": rebalance::ApplyPlan => PlanApplied, Writes, Admins, "rebalance apply";
    "RebalanceStatus": rebalance::ShowRebalance => RebalancePage, Reads, Readers, "rebalance status";
    "CancelRebalance": rebalance::CancelRebalance => RebalanceCancellation, Writes, Admins, "rebalance cancel";
    "ListSettings": settings::ListSettings => SettingsSummary, Reads, Readers, "config show";
    "Configure": settings::Configure => SettingsChanged, Writes, Admins, "config set";
    "ListAccess": access::ListAccess => AccessSummary, Reads, Readers, "access list";
    "SetAccess": access::SetAccess => AccessChanged, Writes, Admins, "access grant|revoke";
    "Withdraw": access::RevokeCertificates => CertificatesWithdrawn, Writes, Admins, "access withdraw|readmit";
    "Quorum": quorum::ShowQuorum => Quorum, Reads, Readers, "quorum list";
    "ChangeQuorum": quorum::ChangeQuorum => QuorumChanged, Writes, Admins,
        "quorum promote|demote|remove|replace|set-address|settle|cancel";
    "TransferLead": quorum::TransferLead => LeadTransferred, Writes, Admins, "quorum transfer-leader";
    "ShowUpgrade": upgrade::ShowUpgrade => UpgradeSummary, Reads, Readers, "upgrade status";
    "ChangeUpgrade": upgrade::ChangeUpgrade => UpgradeChanged, Writes, Admins, "upgrade hold|release|finalize";
}

/// The method that is called by this gRPC path.
pub fn method_at(path: &str) -> Option<&'static Method> {
    METHODS.iter().copied().find(|method| method.path == path)
}

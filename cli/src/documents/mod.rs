//! What `-o json` prints. Documents that are answers of the cluster are types of the client library; what a verb makes of
//! them stands here. `docs/JSON.md` and `docs/json.schema.json` are made of these types, and a test holds them to it.

mod admin;
mod cert;
#[cfg(test)]
mod contract;
mod doctor;
mod error;
mod kv;
#[cfg(test)]
pub(crate) mod testing;
mod version;

pub(crate) use admin::{
    Applied, BackupTaken, HostedCopy, LeadTransferred, NodeChanged, NodeDescription, NodeOrdered, PartitionOrdered,
    QuorumChanged, QuorumRecovered, QuorumSnapshotFile,
};
pub(crate) use archon_client::{
    NodeSummary as Node, PartitionSummary as Partition, Plan, RebalanceStatus as Rebalance, Status,
};
pub(crate) use archon_console::{Entry, ValueText};
pub(crate) use cert::{CertificateCheck, CertificateRequest, CertificateSummary, MemberCertificates, ShownCertificate};
pub(crate) use doctor::{Diagnosis, Finding, FindingCode, Verdict};
pub(crate) use error::{ErrorBody, ErrorDocument};
pub(crate) use kv::{Counted, Exported, Imported, Key, Outcome, Row, Written};
pub(crate) use version::Version;

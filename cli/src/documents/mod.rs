//! Documents of `-o json`. Answers of the cluster are types of the client library; this module holds the documents of
//! verbs. `docs/reference/json.md` and `docs/reference/json.schema.json` are generated from these types, and a test checks them.

mod admin;
mod cert;
#[cfg(test)]
pub(crate) mod contract;
mod doctor;
mod error;
mod kv;
#[cfg(test)]
pub(crate) mod testing;
mod version;

pub(crate) use admin::{
    BackupTaken, HostedCopy, LeadTransferred, NodeChanged, NodeDescription, NodeOrdered, PartitionOrdered, PlanOutcome,
    QuorumChanged, QuorumRecovered, QuorumSnapshotFile,
};
pub(crate) use archon_client::{
    NodeSummary as Node, PartitionSummary as Partition, Plan, RebalanceStatus as Rebalance, Status,
};
pub(crate) use archon_console::{Entry, ValueText};
pub(crate) use cert::{CertificateCheck, CertificateRequest, CertificateSummary, MemberCertificates, ShownCertificate};
pub(crate) use doctor::{Diagnosis, Finding, FindingCode, Verdict};
pub(crate) use error::{ErrorBody, ErrorDocument};
pub(crate) use kv::{CounterValue, ExportSummary, ImportSummary, Key, Outcome, Row, WrittenKey};
pub(crate) use version::Version;

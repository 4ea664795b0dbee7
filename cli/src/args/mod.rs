//! The command line: its syntax and meaning. A contract: scripts rely on these names.

mod access;
mod admin;
mod backup;
mod bench;
mod bootstrap;
mod bounds;
mod cert;
mod config;
mod connection;
mod doctor;
mod hints;
mod kv;
mod lock;
mod orders;
pub(crate) mod parse;
mod participant;
mod partitions;
mod quorum;
mod read;
mod serve;
mod tables;
mod upgrade;
mod verb;

pub(crate) use access::*;
pub(crate) use admin::*;
pub(crate) use backup::{BackupVerb, CreateBackupArgs, LookAtBackupArgs, ProgressArgs, RestoreBackupArgs};
pub(crate) use bench::{
    AttackArgs, BenchArgs, BenchVerb, Disturbance, FailoverArgs, GrowArgs, LoadArgs, LocalArgs, MovesArgs, ProbeArgs,
    ReadArgs, SplitArgs, WriteOrder,
};
pub(crate) use bootstrap::{BootstrapArgs, FAILOVER, flag_of, variable_of};
pub(crate) use cert::{
    AuthorityArgs, CertVerb, CheckCertArgs, IssueArgs, ParticipantCertArgs, RequestArgs, ShowArgs, SignArgs, TermArgs,
};
pub(crate) use config::*;
pub(crate) use connection::Connection;
pub(crate) use doctor::DoctorArgs;
pub(crate) use kv::{ExportArgs, ImportArgs, KvArgs, KvVerb, RowFormat, ScanArgs};
pub(crate) use lock::LockArgs;
pub(crate) use orders::*;

pub(crate) use participant::ParticipantArgs;
pub(crate) use partitions::*;
pub(crate) use quorum::*;
pub(crate) use read::parse_line;
pub(crate) use serve::{CoordinatorArgs, DemoArgs, LogArgs, LogFormat, NodeArgs, spoken};
pub(crate) use tables::*;
pub(crate) use upgrade::*;
pub(crate) use verb::{Cli, Verb};

#[cfg(test)]
mod tests;

//! Envelope of messages between coordinators, and its check before openraft receives them.

use super::judge::{PeerMessage, Standard};
use crate::quorum::timing::QuorumTiming;
use crate::raft::identity::kept_marks::KeptMarks;
use crate::raft::identity::protocol_support::ProtocolSupport;
use crate::raft::log::codec;
use crate::raft::machine::checksums::Checksums;
use archon_coordinator_core::{Acquaintances, CoordinatorRefusal};
use archon_proto::convert::admin::upgrade::protocol_range;
use archon_proto::v1::{HelloRequest, RaftMessage};
use archon_types::{ClusterId, StorageId};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use tonic::Status;
use uuid::Uuid;

/// Identity of this coordinator towards its peers.
#[derive(Clone, Debug)]
pub(crate) struct LocalVoter {
    /// Its id.
    pub(crate) id: u64,
    /// Its data directory.
    pub(crate) storage: Uuid,
    /// Key of its quorum, made of the peer list with which the quorum was founded; a newcomer receives it.
    pub(crate) quorum: Uuid,
    /// Coordinators that may talk to it before its own log names it: the founders, or the members when it joined.
    pub(crate) expected: Arc<BTreeSet<u64>>,
    /// Its protocols.
    pub(crate) spoken: ProtocolSupport,
    /// Heartbeat and election timing.
    pub(crate) timing: QuorumTiming,
    /// Log watermarks of the voters.
    pub(crate) marks: KeptMarks,
    /// Checksums of the state.
    pub(crate) checksums: Checksums,
}

impl LocalVoter {
    /// Wraps one of openraft's types for a peer.
    pub(crate) fn message<T: Serialize>(&self, target: u64, what: &'static str, body: &T) -> io::Result<RaftMessage> {
        let (state_checksum, agreed_checksum) = self.checksums.said();
        Ok(RaftMessage {
            cluster_id: Bytes::copy_from_slice(self.quorum.as_bytes()),
            sender: self.id,
            target,
            format: self.spoken.cluster(),
            protocol_min: self.spoken.range().oldest,
            protocol_max: self.spoken.range().newest,
            body: codec::encode(what, body)?,
            sender_storage: Bytes::copy_from_slice(self.storage.as_bytes()),
            lack: None,
            snapshot_waits: false,
            certificate: None,
            voters: self.marks.said(),
            state_checksum,
            agreed_checksum,
        })
    }

    /// Returns the question asked before it takes part.
    pub(crate) fn hello(&self, target: u64) -> HelloRequest {
        HelloRequest {
            cluster_id: Bytes::copy_from_slice(self.quorum.as_bytes()),
            sender: self.id,
            target,
            sender_storage: Bytes::copy_from_slice(self.storage.as_bytes()),
            subject: None,
            cluster: Bytes::new(),
            generation: 0,
            generation_key: None,
            works: false,
            address: String::new(),
        }
    }

    /// Refuses a message of another quorum, for another target, or in this coordinator's own name.
    pub(crate) fn check_target(&self, cluster: &[u8], target: u64, sender: u64) -> Result<(), Status> {
        if cluster != self.quorum.as_bytes() {
            return Err(Status::failed_precondition(format!(
                "coordinator {sender} has another peer list than coordinator {}, or is of another cluster; those that \
                 found a quorum are all started with the same \
                 --peers, one that joins a quorum that is there with --join instead, and one from before a recovery \
                 never again",
                self.id
            )));
        }
        if target != self.id {
            return Err(Status::failed_precondition(format!(
                "this is coordinator {}, the message is for {target}; check the addresses in --peers",
                self.id
            )));
        }
        if sender == self.id {
            return Err(Status::failed_precondition(format!(
                "coordinator {sender} heard from itself; another process uses its id, or --peers names an address twice"
            )));
        }
        Ok(())
    }

    /// Returns the reason for which this member of a cluster refuses a caller, if that is of another cluster, or founds
    /// a quorum although one exists.
    pub(crate) fn of_another_cluster(&self, own: ClusterId, hello: &HelloRequest) -> Option<Status> {
        let (id, sender) = (self.id, hello.sender);
        let why = match Uuid::from_slice(&hello.cluster) {
            Ok(theirs) if theirs != own.get() => format!(
                "a coordinator of another cluster answers there: this is coordinator {id} of cluster {own}, and \
                 coordinator {sender} is of \
                 cluster {theirs}"
            ),
            Err(_) if hello.cluster_id != self.quorum.as_bytes()[..] => format!(
                "coordinator {id} is a member of cluster {own} already, and the --peers of coordinator {sender} differ \
                 from its founders"
            ),
            _ => return None,
        };
        Some(Status::failed_precondition(format!("{why}; check the addresses, and which process listens there")))
    }

    /// Refuses everything [`LocalVoter::check_target`] does, strangers, and coordinators that lost their directory.
    /// `known`: the members with their directories, empty without a quorum.
    pub(crate) fn check(
        &self,
        cluster: &[u8],
        target: u64,
        sender: u64,
        storage: &[u8],
        known: &Acquaintances,
    ) -> Result<(), Status> {
        self.check_target(cluster, target, sender)?;
        let storage =
            Uuid::from_slice(storage).map_err(|_| Status::invalid_argument("sender_storage must have 16 bytes"))?;
        known.hears(self.id, sender, StorageId::new(storage), &self.expected).map_err(|unheard| match unheard {
            CoordinatorRefusal::OtherDirectory => Status::failed_precondition(format!(
                "coordinator {sender} became a member with another data directory than {storage}: \
                 a wiped voter does not rejoin under its id"
            )),
            CoordinatorRefusal::Unexpected => Status::permission_denied(format!(
                "coordinator {sender} is not in the --peers of coordinator {}; start all with the same --peers",
                self.id
            )),
            CoordinatorRefusal::Stranger => Status::permission_denied(format!(
                "coordinator {sender} is not a member of the quorum of coordinator {}; a new one joins with --join",
                self.id
            )),
        })
    }

    /// Checks a message, takes its body out and validates it. `term` is that of this voter's vote.
    pub(crate) fn open<T: DeserializeOwned + PeerMessage>(
        &self,
        what: &'static str,
        message: &RaftMessage,
        term: u64,
        known: &Acquaintances,
    ) -> Result<T, Status> {
        self.check(&message.cluster_id, message.target, message.sender, &message.sender_storage, known)?;
        let newest = self.marks.take(message.sender, &message.sender_storage, &message.voters);
        newest.map_err(Status::failed_precondition)?;
        let body: T = self.open_body(what, message).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let judged = body.judge(Standard { sender: message.sender, term });
        judged.map_err(|why| Status::invalid_argument(format!("{what} is refused: {why}")))?;
        self.checksums.take(message.sender, message);
        Ok(body)
    }

    /// Takes the body out of a peer's answer, if it comes from the voter that was asked: one with another data
    /// directory holds another log, and counting its answer as this one's could commit missing entries. The body is
    /// validated as well.
    pub(crate) fn open_answer<T: DeserializeOwned + PeerMessage>(
        &self,
        what: &'static str,
        message: &RaftMessage,
        (from, storage): (u64, Uuid),
        term: u64,
    ) -> io::Result<T> {
        let invalid = |error: String| io::Error::new(io::ErrorKind::InvalidData, error);
        if message.sender != from || message.sender_storage[..] != storage.as_bytes()[..] {
            let error =
                format!("{what} comes from coordinator {} with another data directory than {from} had", message.sender);
            return Err(invalid(error));
        }
        self.marks.take(from, storage.as_bytes(), &message.voters).map_err(invalid)?;
        let body: T = self.open_body(what, message)?;
        let judged = body.judge(Standard { sender: from, term });
        judged.map_err(|why| invalid(format!("{what} is refused: {why}")))?;
        self.checksums.take(from, message);
        Ok(body)
    }

    /// Takes the body out of a message after a check of its sender.
    fn open_body<T: DeserializeOwned>(&self, what: &'static str, message: &RaftMessage) -> io::Result<T> {
        let (protocol, range) = (message.format, self.spoken.range());
        if !range.contains(protocol) {
            let error = format!(
                "{what} has protocol {protocol}, and coordinator {} supports {range}: start the version of the other \
                 members",
                self.id
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        let speaks = protocol_range((message.protocol_min, message.protocol_max), "RaftMessage.protocol_min");
        let speaks = speaks.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        let cluster = self.spoken.cluster();
        if !speaks.contains(cluster) {
            let error = format!(
                "{what} comes from coordinator {}, which supports {speaks}, and the cluster uses protocol {cluster}: \
                 start the version of the other members there",
                message.sender
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        codec::decode(what, &message.body)
    }
}

/// The key of a quorum: two FNV-1a hashes over its sorted peer list. It guards against mistakes, not attackers.
pub(crate) fn quorum_key(peers: &BTreeMap<u64, String>) -> Uuid {
    let mut text = String::new();
    for (id, address) in peers {
        text.push_str(&format!("{id}={address},"));
    }
    let hash =
        |seed: u64| text.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let (high, low) = (hash(0xcbf2_9ce4_8422_2325), hash(0x6c62_272e_07bb_0142));
    Uuid::from_u64_pair(high, low)
}

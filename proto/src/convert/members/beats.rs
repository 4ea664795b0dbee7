//! Heartbeats and their answers: frames of the stream `Beats`.

use super::load::Load;
use crate::convert::{ConvertError, bounded, ids, required};
use crate::v1;
use archon_types::{
    ClusterId, DoorFailure, DoorReport, Epoch, ErrorDetail, FencingProof, Incarnation, NodeId, PROTOCOL_FIRST,
    PartitionId, PushKey, SHUT_DOORS_MAX, ShutDoor, Version, limits,
};
use bytes::Bytes;

/// Maximum size of a proof in bytes.
const PROOF_BYTES: usize = 32;
/// Maximum number of table updates in one frame of answers.
pub const NEWS_MAX: usize = 8;
/// Maximum overhead of a table update beside rows and nodes, in bytes: the addresses of the coordinators, and the list
/// of tables.
const NEWS_OVERHEAD_BYTES: usize = limits::NEWS_BYTES_MAX;
/// Maximum number of heartbeats, or of answers, in one frame.
pub const BEATS_MAX: usize = 4_096;

/// Heartbeats in one frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beats {
    /// The cluster of all of them.
    pub cluster: ClusterId,
    /// Rises with each frame of a stream; the answer echoes it.
    pub batch: u64,
    /// At least one, and at most [`BEATS_MAX`].
    pub beats: Vec<Beat>,
    /// Incarnation of the relay; absent if a member sends its own.
    pub relay: Option<(NodeId, Incarnation)>,
}

/// A heartbeat: the member is alive and makes progress.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beat {
    /// The member.
    pub node: NodeId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Rises with each heartbeat of an incarnation; the answer echoes it.
    pub number: u64,
    /// The table version that the node holds.
    pub table_version: Version,
    /// True if it requests to hand over its leaderships.
    pub stopping: bool,
    /// Key that pushes must contain for it to obey them.
    pub push_key: PushKey,
    /// Its load; absent: unchanged.
    pub load: Option<Load>,
    /// Results of its probes of other nodes, if it makes any.
    pub doors: Option<DoorReport>,
    /// Proof of origin, if a relay carries it in a cluster with authentication; otherwise empty.
    pub proof: Bytes,
}

/// Outcomes of the heartbeats of one frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BeatAnswers {
    /// The number of the frame.
    pub batch: u64,
    /// The outcomes; or the reason for which none of them is answered from here.
    pub outcome: Result<HeartbeatAnswers, ErrorDetail>,
    /// A relay holds a row that fences the incarnation it hears. Sent beside a refusal, for members that do not know
    /// this field.
    pub over: Option<FencingProof>,
}

impl BeatAnswers {
    /// Creates the outcomes of the heartbeats of a frame.
    pub const fn new(batch: u64, outcome: Result<HeartbeatAnswers, ErrorDetail>) -> Self {
        Self { batch, outcome, over: None }
    }

    /// Creates a relay's notice that an incarnation is fenced, as an answer or unasked.
    pub fn over(batch: u64, over: FencingProof) -> Self {
        Self { batch, outcome: Err(over.refusal()), over: Some(over) }
    }
}

/// The answers to the heartbeats of one frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeartbeatAnswers {
    /// At most [`BEATS_MAX`]; a heartbeat without new facts about its incarnation has none.
    pub answers: Vec<BeatAnswer>,
    /// Facts for all members.
    pub now: ClusterNow,
    /// Time until the next batch leaves, in milliseconds, if a relay passes them on.
    pub next_departure_ms: Option<u64>,
    /// Table updates for members, encoded; at most [`NEWS_MAX`].
    pub news: Vec<Bytes>,
}

impl HeartbeatAnswers {
    /// Creates answers without anything else.
    pub const fn new(answers: Vec<BeatAnswer>, now: ClusterNow) -> Self {
        Self { answers, now, next_departure_ms: None, news: Vec::new() }
    }
}

/// Current facts about the cluster in each answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClusterNow {
    /// Maximum time for which a follower may leave its leader without an answer.
    pub replication_timeout_ms: u64,
    /// Protocol of the cluster.
    pub protocol: u32,
    /// The term in which the answering coordinator leads; zero if nothing was granted.
    pub term: u64,
    /// Number of nodes that relay heartbeats; zero: none does.
    pub relays: u32,
    /// Interval at which nodes probe each other; zero: never.
    pub door_every_ms: u64,
}

/// The answer to a heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BeatAnswer {
    /// Its recipient.
    pub node: NodeId,
    /// The recipient's incarnation.
    pub incarnation: Incarnation,
    /// The heartbeat that is answered.
    pub number: u64,
    /// A lease; or the reason for its absence.
    pub outcome: Result<LeaseGrant, ErrorDetail>,
    /// Proof of origin from a coordinator, as [`Beat::proof`]; otherwise empty.
    pub proof: Bytes,
    /// Its table update, if any.
    pub news: Option<NewsFor>,
}

/// Table update for one member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewsFor {
    /// Its position in [`HeartbeatAnswers::news`].
    pub place: usize,
    /// Proof that a coordinator addressed it to this incarnation, as [`Beat::proof`]; otherwise empty.
    pub proof: Bytes,
}

impl BeatAnswer {
    /// Creates an answer without proof and table update.
    pub const fn new(
        node: NodeId,
        incarnation: Incarnation,
        number: u64,
        outcome: Result<LeaseGrant, ErrorDetail>,
    ) -> Self {
        Self { node, incarnation, number, outcome, proof: Bytes::new(), news: None }
    }
}

/// A lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseGrant {
    /// Duration for which the node may serve, in milliseconds from sending the heartbeat.
    pub lease_ms: u64,
    /// Leaderships that the lease does not cover.
    pub withdrawn: Vec<(PartitionId, Epoch)>,
}

impl From<Beats> for v1::Beats {
    fn from(beats: Beats) -> Self {
        Self {
            cluster: Some(beats.cluster.into()),
            batch: beats.batch,
            beats: beats.beats.into_iter().map(Into::into).collect(),
            relay: beats
                .relay
                .map(|(node, incarnation)| v1::Relay { node: node.get(), incarnation: incarnation.get() }),
        }
    }
}

impl TryFrom<v1::Beats> for Beats {
    type Error = ConvertError;

    fn try_from(wire: v1::Beats) -> Result<Self, ConvertError> {
        bounded(wire.beats.len(), BEATS_MAX, "Beats.beats")?;
        if wire.beats.is_empty() {
            return Err(ConvertError::new("Beats.beats", "none; a frame has at least one heartbeat"));
        }
        Ok(Self {
            cluster: required(ids::cluster_id(wire.cluster.as_ref())?, "Beats.cluster")?,
            batch: wire.batch,
            beats: wire.beats.into_iter().map(Beat::try_from).collect::<Result<_, _>>()?,
            relay: wire.relay.map(relay).transpose()?,
        })
    }
}

fn relay(wire: v1::Relay) -> Result<(NodeId, Incarnation), ConvertError> {
    let node = NodeId::new(ids::non_zero(wire.node, "Relay.node")?);
    Ok((node, Incarnation::new(ids::non_zero(wire.incarnation, "Relay.incarnation")?)))
}

impl From<Beat> for v1::Beat {
    fn from(beat: Beat) -> Self {
        Self {
            node: beat.node.get(),
            incarnation: beat.incarnation.get(),
            number: beat.number,
            table_version: beat.table_version.get(),
            stopping: beat.stopping,
            push_key: ids::uuid_bytes(beat.push_key.get()),
            load: beat.load.map(Into::into),
            doors: beat.doors.map(Into::into),
            proof: beat.proof,
        }
    }
}

impl TryFrom<v1::Beat> for Beat {
    type Error = ConvertError;

    fn try_from(wire: v1::Beat) -> Result<Self, ConvertError> {
        Ok(Self {
            node: NodeId::new(ids::non_zero(wire.node, "Beat.node")?),
            incarnation: Incarnation::new(ids::non_zero(wire.incarnation, "Beat.incarnation")?),
            number: ids::non_zero(wire.number, "Beat.number")?,
            table_version: Version::new(wire.table_version),
            stopping: wire.stopping,
            push_key: ids::push_key(&wire.push_key, "Beat.push_key")?,
            load: wire.load.map(Load::try_from).transpose()?,
            doors: wire.doors.map(DoorReport::try_from).transpose()?,
            proof: proof(wire.proof, "Beat.proof")?,
        })
    }
}

impl From<DoorReport> for v1::DoorReport {
    fn from(report: DoorReport) -> Self {
        let door = |door: ShutDoor| v1::ShutDoor {
            node: door.node.get(),
            incarnation: door.incarnation.get(),
            refused: door.how == DoorFailure::Refused,
            since_ms: door.since_ms,
        };
        let DoorReport { members, reached, shut } = report;
        Self { members, reached, shut: shut.into_iter().map(door).collect() }
    }
}

impl TryFrom<v1::DoorReport> for DoorReport {
    type Error = ConvertError;

    fn try_from(wire: v1::DoorReport) -> Result<Self, ConvertError> {
        bounded(wire.shut.len(), SHUT_DOORS_MAX, "DoorReport.shut")?;
        let door = |door: v1::ShutDoor| {
            Ok(ShutDoor {
                node: NodeId::new(ids::non_zero(door.node, "ShutDoor.node")?),
                incarnation: Incarnation::new(ids::non_zero(door.incarnation, "ShutDoor.incarnation")?),
                how: if door.refused { DoorFailure::Refused } else { DoorFailure::Silent },
                since_ms: door.since_ms,
            })
        };
        let v1::DoorReport { members, reached, shut } = wire;
        Ok(Self { members, reached, shut: shut.into_iter().map(door).collect::<Result<_, ConvertError>>()? })
    }
}

impl From<BeatAnswers> for v1::BeatAnswers {
    fn from(answers: BeatAnswers) -> Self {
        let BeatAnswers { batch, outcome, over } = answers;
        let over = over.map(Into::into);
        match outcome {
            Ok(HeartbeatAnswers { answers, now, next_departure_ms, news }) => {
                let ClusterNow { replication_timeout_ms, protocol, term, relays, door_every_ms } = now;
                let answers = answers.into_iter().map(Into::into).collect();
                Self {
                    batch,
                    refused: None,
                    answers,
                    replication_timeout_ms,
                    protocol,
                    term,
                    relays,
                    next_departure_ms,
                    over,
                    door_every_ms,
                    news,
                }
            }
            Err(detail) => Self { batch, refused: Some(detail.into()), over, ..Self::default() },
        }
    }
}

impl TryFrom<v1::BeatAnswers> for BeatAnswers {
    type Error = ConvertError;

    fn try_from(wire: v1::BeatAnswers) -> Result<Self, ConvertError> {
        let batch = wire.batch;
        let over = wire.over.map(FencingProof::try_from).transpose()?;
        if let Some(refused) = wire.refused {
            return Ok(Self { batch, outcome: Err(refused.into()), over });
        }
        bounded(wire.answers.len(), BEATS_MAX, "BeatAnswers.answers")?;
        bounded(wire.news.len(), NEWS_MAX, "BeatAnswers.news")?;
        for news in &wire.news {
            bounded(news.len(), limits::NEWS_BYTES_MAX + NEWS_OVERHEAD_BYTES, "BeatAnswers.news")?;
        }
        let judged = HeartbeatAnswers {
            answers: wire
                .answers
                .into_iter()
                .map(|answer| with_news(answer, wire.news.len()))
                .collect::<Result<_, _>>()?,
            now: ClusterNow {
                replication_timeout_ms: ids::non_zero(
                    wire.replication_timeout_ms,
                    "BeatAnswers.replication_timeout_ms",
                )?,
                // Coordinators that know only the first one do not send it.
                protocol: wire.protocol.max(PROTOCOL_FIRST),
                term: wire.term,
                relays: wire.relays,
                door_every_ms: wire.door_every_ms,
            },
            next_departure_ms: wire.next_departure_ms,
            news: wire.news,
        };
        Ok(Self { batch, outcome: Ok(judged), over })
    }
}

/// Reads an answer of a frame with `news` table updates.
fn with_news(wire: v1::BeatAnswer, news: usize) -> Result<BeatAnswer, ConvertError> {
    let answer = BeatAnswer::try_from(wire)?;
    match &answer.news {
        Some(NewsFor { place, .. }) if *place >= news => {
            Err(ConvertError::new("BeatAnswer.news", format!("{}, of {news}", place + 1)))
        }
        _ => Ok(answer),
    }
}

impl From<BeatAnswer> for v1::BeatAnswer {
    fn from(answer: BeatAnswer) -> Self {
        let (node, incarnation, number) = (answer.node.get(), answer.incarnation.get(), answer.number);
        let leadership = |(partition, epoch): (PartitionId, Epoch)| v1::Leadership {
            partition: Some(partition.into()),
            epoch: epoch.get(),
        };
        let (news, news_proof) = match answer.news {
            Some(NewsFor { place, proof }) => (u32::try_from(place).map_or(0, |place| place.saturating_add(1)), proof),
            None => (0, Bytes::new()),
        };
        match answer.outcome {
            Ok(LeaseGrant { lease_ms, withdrawn }) => {
                let (withdrawn, proof) = (withdrawn.into_iter().map(leadership).collect(), answer.proof);
                Self { node, incarnation, number, refused: None, lease_ms, withdrawn, proof, news, news_proof }
            }
            Err(detail) => {
                let (refused, proof) = (Some(detail.into()), answer.proof);
                Self { node, incarnation, number, refused, proof, news, news_proof, ..Self::default() }
            }
        }
    }
}

impl TryFrom<v1::BeatAnswer> for BeatAnswer {
    type Error = ConvertError;

    fn try_from(wire: v1::BeatAnswer) -> Result<Self, ConvertError> {
        let leadership = |leadership: v1::Leadership| {
            let partition = required(leadership.partition, "Leadership.partition")?;
            Ok((PartitionId::try_from(partition)?, Epoch::new(leadership.epoch)))
        };
        let outcome = match wire.refused {
            Some(refused) => Err(refused.into()),
            None => Ok(LeaseGrant {
                lease_ms: wire.lease_ms,
                withdrawn: wire.withdrawn.into_iter().map(leadership).collect::<Result<_, ConvertError>>()?,
            }),
        };
        Ok(Self {
            node: NodeId::new(ids::non_zero(wire.node, "BeatAnswer.node")?),
            incarnation: Incarnation::new(ids::non_zero(wire.incarnation, "BeatAnswer.incarnation")?),
            number: ids::non_zero(wire.number, "BeatAnswer.number")?,
            outcome,
            proof: proof(wire.proof, "BeatAnswer.proof")?,
            news: match usize::try_from(wire.news).unwrap_or(usize::MAX).checked_sub(1) {
                Some(place) => Some(NewsFor { place, proof: proof(wire.news_proof, "BeatAnswer.news_proof")? }),
                None => None,
            },
        })
    }
}

/// Returns a proof, or an empty one.
fn proof(wire: Bytes, field: &'static str) -> Result<Bytes, ConvertError> {
    bounded(wire.len(), PROOF_BYTES, field)?;
    Ok(wire)
}

#[cfg(test)]
#[path = "beats_tests.rs"]
mod tests;

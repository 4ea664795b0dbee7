//! Heartbeats on streams.

use archon_frames::{FrameError, FrameReader, FrameWriter, StreamKind, connect};
use archon_proto::convert::members::beats::{BeatAnswers, LeaseGrant};
use archon_proto::v1;
use archon_security::{ExpectedPeer, Transport};
use archon_types::ErrorDetail;
use std::time::Duration;

/// Sends one heartbeat on a stream of its own, and returns its answer.
pub async fn beat_once(
    coordinator: &str,
    cluster: Option<v1::ClusterRef>,
    beat: v1::Beat,
) -> Result<LeaseGrant, ErrorDetail> {
    let answers = beats(coordinator, v1::Beats { cluster, batch: 1, beats: vec![beat], relay: None }).await?;
    answers.outcome?.answers.remove(0).outcome
}

/// Sends heartbeats on a stream of their own, and returns their answers.
pub async fn beats(coordinator: &str, beats: v1::Beats) -> Result<BeatAnswers, ErrorDetail> {
    let (mut reader, mut writer) = beat_stream(coordinator).await;
    writer.push(&beats);
    writer.flush().await.unwrap();
    let answers = tokio::time::timeout(Duration::from_secs(60), reader.next::<v1::BeatAnswers>()).await;
    let answers = answers.expect("an answer within 10 s").map_err(FrameError::into_detail)?;
    Ok(BeatAnswers::try_from(answers).unwrap())
}

pub async fn beat_stream(coordinator: &str) -> (FrameReader, FrameWriter) {
    connect(
        &Transport::default(),
        coordinator,
        &ExpectedPeer::Coordinators,
        StreamKind::Beats,
        1 << 20,
        Duration::from_secs(5),
    )
    .await
    .unwrap()
}

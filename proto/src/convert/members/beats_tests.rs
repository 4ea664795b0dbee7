use super::*;
use crate::convert::members::load::{CopyProgress, PlacementLoad};
use archon_types::{ErrorKind, PlacementId, TableId};
use proptest::prelude::*;
use prost::Message;
use uuid::Uuid;

fn beat() -> Beat {
    let placement = PlacementId::new(8);
    Beat {
        node: NodeId::new(2),
        incarnation: Incarnation::new(3),
        number: 1,
        table_version: Version::new(7),
        load: Some(Load {
            bytes_stored: 1,
            operations_per_second: 2,
            placements: vec![PlacementLoad { placement, bytes: 3, keys: 4 }],
            copies: vec![CopyProgress { placement, bytes_done: 5, bytes_total: 6 }],
            disk_full: Some(archon_types::DiskFull::new(7, 8, Some(0))),
            certificate: Some(archon_types::MemberCertificate {
                begins_at: archon_types::Millis::new(1),
                expires_at: archon_types::Millis::new(2),
                not_taken: true,
                authority: Some(archon_types::AuthorityPrint(*b"archon-1")),
            }),
            log_pin: Some(archon_types::LogPin { placement, bytes: 9 }),
        }),
        stopping: true,
        push_key: PushKey::new(Uuid::from_u128(5)),
        doors: Some(DoorReport {
            members: 5,
            reached: 3,
            shut: vec![shut(DoorFailure::Silent), shut(DoorFailure::Refused)],
        }),
        proof: Bytes::from_static(&[7; 32]),
    }
}

fn shut(how: DoorFailure) -> ShutDoor {
    ShutDoor { node: NodeId::new(7), incarnation: Incarnation::new(8), how, since_ms: 900 }
}

fn beats() -> Beats {
    let second = Beat { node: NodeId::new(3), load: None, doors: None, stopping: false, ..beat() };
    let relay = Some((NodeId::new(9), Incarnation::new(8)));
    Beats { cluster: ClusterId::new(Uuid::from_u128(1)), batch: 4, beats: vec![beat(), second], relay }
}

fn shut_of(wire: &mut v1::Beats) -> &mut Vec<v1::ShutDoor> {
    &mut wire.beats[0].doors.as_mut().unwrap().shut
}

#[test]
fn heartbeats_round_trip_and_invalid_ones_name_the_field() {
    assert_eq!(Beats::try_from(v1::Beats::from(beats())), Ok(beats()));
    type Spoil = fn(&mut v1::Beats);
    let cases: [(Spoil, &str); 12] = [
        (|wire| wire.cluster = None, "Beats.cluster"),
        (|wire| wire.relay = Some(v1::Relay { node: 1, incarnation: 0 }), "Relay.incarnation"),
        (|wire| wire.beats.clear(), "Beats.beats"),
        (|wire| wire.beats = vec![wire.beats[0].clone(); BEATS_MAX + 1], "Beats.beats"),
        (|wire| wire.beats[1].node = 0, "Beat.node"),
        (|wire| wire.beats[1].incarnation = 0, "Beat.incarnation"),
        (|wire| wire.beats[1].number = 0, "Beat.number"),
        (|wire| wire.beats[1].push_key = bytes::Bytes::new(), "Beat.push_key"),
        (|wire| shut_of(wire)[1].node = 0, "ShutDoor.node"),
        (|wire| shut_of(wire)[0].incarnation = 0, "ShutDoor.incarnation"),
        (|wire| *shut_of(wire) = vec![shut_of(wire)[0]; SHUT_DOORS_MAX + 1], "DoorReport.shut"),
        (|wire| wire.beats[1].proof = Bytes::from_static(&[7; 33]), "Beat.proof"),
    ];
    for (spoil, field) in cases {
        let mut wire = v1::Beats::from(beats());
        spoil(&mut wire);
        assert_eq!(Beats::try_from(wire).map_err(|error| error.field), Err(field));
    }
}

#[test]
fn answers_round_trip_and_invalid_ones_name_the_field() {
    let refused = || ErrorDetail::new(ErrorKind::StaleIncarnation, "that life is over");
    let of = |node, outcome| BeatAnswer {
        proof: Bytes::from_static(&[8; 32]),
        ..BeatAnswer::new(NodeId::new(node), Incarnation::new(3), 9, outcome)
    };
    let withdrawn = vec![(PartitionId::new(TableId::new(1), 5), Epoch::new(2))];
    let news = |place| Some(NewsFor { place, proof: Bytes::from_static(&[9; 32]) });
    let granted = BeatAnswer { news: news(1), ..of(2, Ok(LeaseGrant { lease_ms: 1_000, withdrawn })) };
    let now = ClusterNow { replication_timeout_ms: 900, protocol: 2, term: 6, relays: 7, door_every_ms: 8 };
    let judged = HeartbeatAnswers {
        next_departure_ms: Some(0),
        news: vec![Bytes::from_static(b"one"), Bytes::from_static(b"two")],
        ..HeartbeatAnswers::new(vec![granted, of(3, Err(refused()))], now)
    };
    let over = FencingProof { node: NodeId::new(3), incarnation: Incarnation::new(3), version: Version::new(7) };
    let said =
        [BeatAnswers::new(4, Ok(judged.clone())), BeatAnswers::new(4, Err(refused())), BeatAnswers::over(4, over)];
    for answers in said {
        assert_eq!(BeatAnswers::try_from(v1::BeatAnswers::from(answers.clone())), Ok(answers));
    }
    type Spoil = fn(&mut v1::BeatAnswers);
    let cases: [(Spoil, &str); 9] = [
        (|wire| wire.news = vec![Bytes::new(); NEWS_MAX + 1], "BeatAnswers.news"),
        (|wire| wire.news[0] = vec![0; 2 * limits::NEWS_BYTES_MAX + 1].into(), "BeatAnswers.news"),
        (|wire| wire.answers[1].news = 3, "BeatAnswer.news"),
        (|wire| wire.answers[0].news_proof = Bytes::from_static(&[9; 33]), "BeatAnswer.news_proof"),
        (|wire| wire.over = Some(v1::Over::default()), "Over.node"),
        (|wire| wire.replication_timeout_ms = 0, "BeatAnswers.replication_timeout_ms"),
        (|wire| wire.answers = vec![wire.answers[0].clone(); BEATS_MAX + 1], "BeatAnswers.answers"),
        (|wire| wire.answers[1].number = 0, "BeatAnswer.number"),
        (|wire| wire.answers[0].withdrawn[0].partition = None, "Leadership.partition"),
    ];
    for (spoil, field) in cases {
        let mut wire = v1::BeatAnswers::from(BeatAnswers::new(4, Ok(judged.clone())));
        spoil(&mut wire);
        assert_eq!(BeatAnswers::try_from(wire).map_err(|error| error.field), Err(field));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(wire) = v1::Beats::decode(&bytes[..]) {
            let _ = Beats::try_from(wire);
        }
        if let Ok(wire) = v1::BeatAnswers::decode(&bytes[..]) {
            let _ = BeatAnswers::try_from(wire);
        }
    }
}

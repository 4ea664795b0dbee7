use super::*;
use archon_kv::RowChange;
use archon_kv::row::{encode_value, value_key};
use archon_replica::Position;
use archon_types::{Millis, PartitionId, Revision, TableId};
use bytes::Bytes;

const COPY: PlacementId = PlacementId::new(7);
const FORCED: Epoch = Epoch::new(5);

fn text(seq: u64) -> Bytes {
    Bytes::from(format!("v{seq}"))
}

/// Returns a write to `k` at a position, under a leadership.
fn entry(epoch: u64, seq: u64) -> Entry {
    let row = encode_value(Revision::new(seq), &text(seq));
    let effect = Effect::new(Millis::ZERO, vec![RowChange::set(value_key(b"k"), row)]);
    Entry { at: Position::new(Epoch::new(epoch), Seq::new(seq)), bytes: effect.encode().expect("a small effect") }
}

fn commit(era: &mut Era, entry: &Entry) -> Result<(), Violation> {
    era.ledger.commit(COPY, entry)?;
    let effect = Effect::decode(&entry.bytes).expect("a right effect");
    let named = era.applied.take(entry.at.seq, &effect, |_| false)?;
    era.history.committed(entry.at.seq, &effect, named.is_some())
}

/// Returns three acknowledged writes of epoch 1, and a disk with these entries.
fn scene(held: &[Entry]) -> (PartitionCheck, Stream) {
    let mut known = PartitionCheck::default();
    for seq in 1..=4 {
        known.sent_unnumbered(&Op::Put { key: Bytes::from_static(b"k"), value: text(seq) });
    }
    let first = known.led_in(Epoch::new(1));
    (1..=3).for_each(|seq| commit(first, &entry(1, seq)).expect("it was sent"));
    first.acknowledged = Seq::new(3);
    first.history.saw(&Bytes::from_static(b"k"), 0, Revision::new(3), None).expect("it is there");
    let mut stream = Stream::new(PartitionId::new(TableId::new(1), 0));
    stream.entries.extend(held.iter().cloned());
    (known, stream)
}

fn sees(known: &mut PartitionCheck, epoch: Epoch, floor: u64, seq: u64) -> bool {
    known.led_in(epoch).history.saw(&Bytes::from_static(b"k"), floor, Revision::new(seq), None).is_ok()
}

#[test]
fn accepted_loss_keeps_exactly_the_new_leaders_data() {
    let (mut known, stream) = scene(&[entry(1, 1), entry(1, 2)]);
    let floors = known.floors();
    assert_eq!(known.accept_loss(FORCED, Some((COPY, Some(&stream)))), Ok(1));
    assert_eq!(known.latest().acknowledged, Seq::ZERO, "until it leads nothing is demanded");
    assert_eq!((known.floors(), known.awaited(FORCED)), (vec![3], Some(COPY)));
    known.begins(FORCED, [Some(&stream), None], Seq::ZERO).expect("it begins");
    assert_eq!((known.latest().acknowledged, known.latest().ledger.last()), (Seq::new(2), Seq::new(2)));
    // Operations that began before must see the kept entries, and so must new operations.
    assert_eq!((known.floor(&floors, Epoch::new(4)), known.floor(&floors, FORCED)), (3, 2));
    assert_eq!(known.floors(), [3, 2]);
    assert!(!sees(&mut known, FORCED, 2, 3), "it was given up");
    assert!(!sees(&mut known, FORCED, 2, 1), "the second write was kept");
    assert!(sees(&mut known, FORCED, 2, 2));
    // A cut-off side continues from its own entries.
    assert!(sees(&mut known, Epoch::new(4), 3, 3) && known.is_given_up(Epoch::new(4)) && !known.is_given_up(FORCED));
}

/// It follows a cut-off leader until it learns that it leads.
#[test]
fn entries_received_before_a_forced_leadership_are_valid() {
    let (mut known, stream) = scene(&[entry(1, 1)]);
    known.accept_loss(FORCED, Some((COPY, Some(&stream)))).expect("a loss");
    let (_, later) = scene(&[entry(1, 1), entry(1, 2)]);
    known.begins(FORCED, [Some(&later), None], Seq::new(3)).expect("it begins");
    let latest = known.latest();
    assert_eq!(
        (latest.ledger.last(), latest.acknowledged),
        (Seq::new(3), Seq::new(2)),
        "the third is on its way to the disk"
    );
    assert_eq!(known.awaited(FORCED), None);
}

#[test]
fn operation_repeats_at_most_once_after_accepted_loss() {
    let (mut known, stream) = scene(&[entry(1, 1), entry(1, 2)]);
    known.accept_loss(FORCED, Some((COPY, Some(&stream)))).expect("a loss");
    let latest = known.led_in(FORCED);
    assert_eq!(commit(latest, &entry(5, 3)), Ok(()), "the third was given up, and comes again");
    assert_eq!(commit(latest, &entry(5, 4)), Ok(()));
    assert!(commit(latest, &entry(5, 5)).is_err(), "nobody sent it");
}

#[test]
fn diverged_copy_keeps_its_common_prefix() {
    let (mut known, stream) = scene(&[entry(1, 1), entry(2, 2), entry(2, 3)]);
    assert_eq!(known.accept_loss(FORCED, Some((COPY, Some(&stream)))), Ok(2));
    assert_eq!(known.latest().ledger.last(), Seq::new(1));
}

#[test]
fn empty_start_keeps_nothing_until_a_copy_is_restored() {
    let (mut known, stream) = scene(&[entry(1, 1), entry(1, 2)]);
    known.give_up([COPY, PlacementId::new(8)], None);
    assert_eq!(known.accept_loss(FORCED, None), Ok(3));
    assert_eq!(known.latest().ledger.last(), Seq::ZERO);
    assert!(known.given_up.contains(&COPY));
    // The operator changes its decision.
    known.give_up([PlacementId::new(9)], Some(COPY));
    assert_eq!(known.accept_loss(Epoch::new(9), Some((COPY, Some(&stream)))), Ok(0));
    assert_eq!(known.latest().ledger.last(), Seq::new(2));
    assert!(!known.given_up.contains(&COPY) && known.given_up.contains(&PlacementId::new(8)));
}

//! Input of a node: peers' messages, copied pages, its identity, its log's records, its rows.

use crate::target::{Target, Verdict};
use archon_kv::{Record, Seal, Window, effect, reshape, row};
use archon_kvstore_node::fuzzing;
use archon_types::{ClientId, Epoch, KeyRange, Millis, Position, Revision, Seq, Version};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::fs;
use uuid::Uuid;

fn peer_messages(input: &[u8]) -> Verdict {
    Verdict::of(fuzzing::peer_messages(input), |messages| {
        assert_eq!(
            fuzzing::peer_messages(&fuzzing::encode_peer_messages(messages)).as_ref(),
            Ok(messages),
            "decoding does not restore the messages"
        );
        let names: BTreeSet<_> = messages.iter().map(|message| message.body.name()).collect();
        names.into_iter().collect::<Vec<_>>().join(" ")
    })
}

/// Returns the encoding of messages of all kinds together, and of each one alone.
fn parts() -> Vec<Vec<u8>> {
    let samples = fuzzing::sample_peer_messages();
    let mut parts = vec![fuzzing::encode_peer_messages(&samples)];
    parts.extend(samples.iter().map(|message| fuzzing::encode_peer_messages(std::slice::from_ref(message))));
    parts
}

fn page(input: &[u8]) -> Verdict {
    let Some((sent, rows)) = input.split_first_chunk::<4>() else { return Verdict::Refused("too short".into()) };
    Verdict::of(fuzzing::page(&Bytes::copy_from_slice(rows), u32::from_be_bytes(*sent)), |rows| {
        format!("{} rows", ["no", "one", "some"][rows.len().min(2)])
    })
}

fn fix_page_checksums(input: &mut [u8]) {
    if let Some((sum, rows)) = input.split_first_chunk_mut::<4>() {
        *sum = crc32c::crc32c(rows).to_be_bytes();
    }
}

fn pages() -> Vec<Vec<u8>> {
    let rows = [(Bytes::from_static(b"key"), Bytes::from_static(b"value")), (Bytes::from_static(b"k"), Bytes::new())];
    let mut page = vec![0; 4];
    page.extend_from_slice(&fuzzing::encode_page(&rows));
    fix_page_checksums(&mut page);
    vec![page]
}

fn identity(input: &[u8]) -> Verdict {
    let Ok(directory) = tempfile::tempdir() else { return Verdict::Refused("no temporary directory".into()) };
    let path = directory.path().join("identity.json");
    if fs::write(&path, input).is_err() {
        return Verdict::Refused("no room for a file".into());
    }
    let verdict = Verdict::of(fuzzing::identity(directory.path()), |_| "an identity".into());
    assert_eq!(fs::read(&path).ok().as_deref(), Some(input), "reading an identity changes it");
    // The path differs each time and carries no information.
    match verdict {
        Verdict::Refused(text) => Verdict::Refused(text.replace(&directory.path().display().to_string(), "DIR")),
        accepted @ Verdict::Accepted(_) => accepted,
    }
}

fn identities() -> Vec<Vec<u8>> {
    fuzzing::encode_identity().into_iter().collect()
}

fn log_record(input: &[u8]) -> Verdict {
    Verdict::of(fuzzing::log_record(input), Clone::clone)
}

fn log_records() -> Vec<Vec<u8>> {
    let mut partition = vec![b'p', 1];
    partition.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3]);
    let mut position = vec![b's'];
    position.extend_from_slice(&[0; 16]);
    let mut epoch = vec![b'e'];
    epoch.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 5]);
    let mut entry = vec![b'n', 5];
    entry.extend_from_slice(b"an effect");
    vec![partition, position, epoch, entry]
}

fn effect(input: &[u8]) -> Verdict {
    Verdict::of(effect::Effect::decode(&Bytes::copy_from_slice(input)), |effect| {
        let entry = effect.encode().expect("a decoded effect can be encoded");
        assert_eq!(entry, input, "an effect has only one encoding");
        assert_eq!(effect::Effect::decode(&entry).as_ref(), Ok(effect), "decoding does not restore the effect");
        let clears = if effect.clear.is_some() { ", clears a range" } else { "" };
        format!("{} changes{clears}", ["no", "one", "some"][effect.changes.len().min(2)])
    })
}

fn effects() -> Vec<Vec<u8>> {
    let set = effect::RowChange::set(row::value_key(b"city/1"), row::encode_value(Revision::new(7), b"athens"));
    let remove = effect::RowChange::remove(row::value_key(b"city/2"));
    let effect = effect::Effect::new(Millis::new(1_700_000_000_000), vec![set, remove]);
    let clear =
        reshape::clear(Millis::new(9), KeyRange { begin: Bytes::from_static(b"m"), end: None }, Version::new(3));
    let client = ClientId::new(Uuid::from_u128(9));
    let outcome = row::Outcome::Written(Revision::new(7));
    let record = Some(Record { client, number: 300, done_below: 290, outcome });
    let recorded = effect::Effect { record, ..effect.clone() };
    let forget = effect::Effect { forget: vec![client], ..effect::Effect::new(Millis::new(9), Vec::new()) };
    [effect, clear, recorded, forget].map(|effect| effect.encode().expect("a small effect").to_vec()).to_vec()
}

fn seal() -> Seal {
    let (at, end) = (Bytes::from_static(b"m"), Some(Bytes::from_static(b"t")));
    Seal { attempt: Version::new(3), at, end, position: Position::new(Epoch::new(2), Seq::new(40)) }
}

fn rows(input: &[u8]) -> Verdict {
    let Some((kind, bytes)) = input.split_first() else { return Verdict::Refused("empty".into()) };
    let bytes = Bytes::copy_from_slice(bytes);
    match kind % 5 {
        0 => Verdict::of(row::decode_stored(&bytes), |stored| {
            assert_eq!(row::encode_stored(stored), bytes, "decoding does not restore the value");
            assert_eq!(
                row::expiry_of(&bytes),
                stored.expires,
                "the expiry in the bytes is another one than in the value"
            );
            if stored.expires.is_some() { "a value that expires".into() } else { "a value".into() }
        }),
        1 => Verdict::of(row::decode_millis(&bytes), |_| "a time".into()),
        2 => Verdict::of(row::decode_client_key(&bytes), |_| "a client key".into()),
        3 => Verdict::of(Window::decode(&bytes), |window| {
            assert_eq!(window.encode(), bytes, "decoding does not restore the window");
            format!("a window of {} outcomes", ["no", "one", "some"][window.outcomes_from(0).min(2)])
        }),
        _ => Verdict::of(Seal::decode(&bytes), |seal| {
            assert_eq!(seal.encode(), bytes, "decoding does not restore the seal");
            if seal.end.is_some() { "a seal with an end".into() } else { "a seal without an end".into() }
        }),
    }
}

fn row_seeds() -> Vec<Vec<u8>> {
    let client = ClientId::new(Uuid::from_u128(9));
    let record = |number, outcome| Record { client, number, done_below: 3, outcome };
    let mut window = Window::new(&record(4, row::Outcome::NotANumber), Millis::new(5));
    let of = |kind: u8, bytes: &[u8]| [&[kind], bytes].concat();
    let mut seeds = vec![
        of(0, &row::encode_value(Revision::new(3), b"value")),
        of(0, &row::encode_expiring(Revision::new(3), Millis::new(1_700_000_000_000), b"value")),
        of(1, &row::encode_millis(Millis::new(1))),
        of(2, &row::client_key(client)),
        of(3, &window.encode()),
    ];
    let outcomes = [
        row::Outcome::Written(Revision::new(4)),
        row::Outcome::Deleted(true),
        row::Outcome::ConditionFailed(Revision::new(6)),
        row::Outcome::Counter(-1, Revision::new(8)),
    ];
    for (number, outcome) in (7..).zip(outcomes) {
        window.record(&record(number, outcome), Millis::new(9));
        seeds.push(of(3, &window.encode()));
    }
    seeds.extend([seal(), Seal { end: None, ..seal() }].iter().map(|seal| of(4, &seal.encode())));
    seeds
}

pub(super) fn targets() -> Vec<Target> {
    vec![
        Target::new("node/peer-messages", peer_messages, parts),
        Target { fix_checksums: Some(fix_page_checksums), ..Target::new("node/page", page, pages) },
        Target::new("node/identity", identity, identities),
        Target::new("node/log-record", log_record, log_records),
        Target::new("node/effect", effect, effects),
        Target::new("node/row", rows, row_seeds),
    ]
}

//! Tests of the encoder against `rmp-serde`, and of valid and invalid input of the decoder.

use super::*;
use archon_coordinator_core::{ClusterState, CommandBatch};
use bytes::Bytes;
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use uuid::Uuid;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Unit;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct WrappedRecord(u64);

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Pair(i16, String);

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
enum Kind {
    Plain,
    Holds(Option<i64>),
    Two(u8, f64),
    Named { of: Vec<Kind>, at: IpAddr },
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind")]
enum TaggedRecord {
    Here { list: Vec<i32>, map: BTreeMap<String, bool> },
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct EveryType {
    unit: Unit,
    wrapped: WrappedRecord,
    pair: Pair,
    kinds: Vec<Kind>,
    tagged: TaggedRecord,
    numbers: (u8, u16, u32, i8, i32, f32, char, ()),
    map: BTreeMap<u32, Vec<Option<bool>>>,
    bytes: Bytes,
    uuid: Uuid,
}

fn everything() -> impl Strategy<Value = EveryType> {
    let numbers = (any::<u8>(), any::<u16>(), any::<u32>(), any::<i8>(), any::<i32>(), -1e9f32..1e9, any::<char>());
    let texts = ("\\PC{0,40}", proptest::collection::vec(any::<u8>(), 0..300), any::<[u8; 16]>());
    let map = proptest::collection::btree_map(any::<u32>(), Just(vec![Some(true), None]), 0..20);
    (any::<(u64, i64, i16)>(), numbers, texts, map).prop_map(|(wide, n, (text, bytes, uuid), map)| EveryType {
        unit: Unit,
        wrapped: WrappedRecord(wide.0),
        pair: Pair(wide.2, text.clone()),
        kinds: vec![
            Kind::Plain,
            Kind::Holds(Some(wide.1)),
            Kind::Holds(None),
            Kind::Two(n.0, f64::from(n.5)),
            Kind::Named { of: vec![Kind::Plain; usize::from(n.0 % 20)], at: [1, 2, 3, n.0].into() },
        ],
        tagged: TaggedRecord::Here { list: vec![n.4, 0, -1], map: BTreeMap::from([(text, n.0 > 9)]) },
        numbers: (n.0, n.1, n.2, n.3, n.4, n.5, n.6, ()),
        map,
        bytes: bytes.into(),
        uuid: Uuid::from_bytes(uuid),
    })
}

fn encoded<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(value, &mut bytes).unwrap();
    bytes
}

fn refused<T: DeserializeOwned>(bytes: &[u8]) -> String {
    decode::<T>(bytes).err().expect("an error").to_string()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn encoder_writes_the_bytes_of_rmp_serde(value in everything()) {
        prop_assert_eq!(encoded(&value), rmp_serde::to_vec_named(&value).unwrap());
    }

    #[test]
    fn decoder_reads_encoded_value(value in everything()) {
        prop_assert_eq!(decode::<EveryType>(&encoded(&value)).unwrap(), value);
    }

    #[test]
    fn decoder_refuses_torn_value(value in everything(), cut in 0.0..1.0f64) {
        let bytes = encoded(&value);
        let cut = (bytes.len() as f64 * cut) as usize;
        prop_assert!(decode::<EveryType>(&bytes[..cut]).is_err());
    }

    #[test]
    fn decoder_survives_changed_bytes(value in everything(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = encoded(&value);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = decode::<EveryType>(&bytes);
    }

    #[test]
    fn decoder_survives_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode::<ClusterState>(&bytes);
        let _ = decode::<CommandBatch>(&bytes);
        let _ = decode::<serde::de::IgnoredAny>(&bytes);
    }
}

#[test]
fn decoder_skips_unknown_fields() {
    #[derive(Deserialize, PartialEq, Debug)]
    struct OlderRecord {
        wrapped: WrappedRecord,
    }
    #[derive(Serialize)]
    struct NewerRecord {
        before: (Vec<u8>, Option<BTreeMap<u8, String>>, f64),
        wrapped: WrappedRecord,
        after: Kind,
    }
    let before = (vec![1, 2], Some(BTreeMap::from([(7, "seven".to_owned())])), 1.5);
    let newer = NewerRecord { before, wrapped: WrappedRecord(300), after: Kind::Two(1, 2.0) };
    assert_eq!(decode::<OlderRecord>(&encoded(&newer)).unwrap(), OlderRecord { wrapped: WrappedRecord(300) });
}

#[test]
fn decoder_bounds_nesting() {
    let deep = vec![0x91; 100_000];
    assert_eq!(refused::<serde::de::IgnoredAny>(&deep), "lists and maps are nested deeper than 128");
}

#[test]
fn decoder_error_names_both_types() {
    assert_eq!(refused::<u64>(&encoded(&"text")), "found text instead of a number from zero");
    assert_eq!(refused::<Vec<u8>>(&encoded(&true)), "found a boolean instead of a list");
    assert_eq!(refused::<Kind>(&encoded(&7u8)), "found a number instead of a map");
    assert_eq!(refused::<Kind>(&encoded(&"Two")), "found its name alone instead of a variant that holds something");
    assert_eq!(refused::<(u8, u8)>(&encoded(&[1, 2, 3])), "1 items of a list or map were not read");
    assert_eq!(refused::<u8>(&[]), "the bytes end within a value");
    assert_eq!(refused::<String>(&[0xa1, 0xff]), "text is not UTF-8");
}

#[test]
fn decoder_reserves_no_more_than_is_there() {
    // A list that announces 4,294,967,295 items.
    assert_eq!(refused::<Vec<[u64; 4]>>(&[0xdd, 0xff, 0xff, 0xff, 0xff, 0x94]), "the bytes end within a value");
}

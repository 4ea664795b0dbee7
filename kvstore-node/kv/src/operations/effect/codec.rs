//! Encoding of effects: entries of a partition's log.

use super::{EFFECT_BYTES_MAX, EFFECT_CHANGES_MAX, Effect, EffectError, FORMAT, RowChange};
use crate::engine::ENGINE_KEY_BYTES_MAX;
use crate::exactly_once::window::Record;
use crate::numbers::{NumberError, number_bytes, put_number, take_number};
use crate::rows::row::{KIND_CLIENT, KIND_VALUE, Outcome, revision_of};
use archon_types::{ClientId, KeyRange, Millis, Revision};
use bytes::{BufMut, Bytes};
use uuid::Uuid;

/// It clears a range.
const CLEARS: u8 = 1;
/// It records an operation.
const RECORDS: u8 = 2;
/// It forgets clients.
const FORGETS: u8 = 4;
/// Bytes before the range and the changes: format, time, and which of the optional parts there are.
const HEAD_BYTES: usize = 1 + 8 + 1;
/// Tag of an outcome: the revision of the row that the first change sets.
const WRITTEN_BY_CHANGE: u8 = 0;
/// Bytes of a client's number.
const CLIENT_BYTES: usize = 16;
/// Least bytes of an encoded change: two lengths and the kind of its key.
const CHANGE_BYTES_MIN: usize = 3;

impl Effect {
    /// Encodes it: format, time, flags, the range to clear (length of its begin, begin, length of its end + 1 (0: none),
    /// end), number of changes, and per change key length, key, value length + 1 (0: remove), value; then the number of
    /// clients to forget and the clients, and the record: client, number, distance of the done mark from it, outcome.
    /// The flags mark the optional parts that are present. Numbers are LEB128 in as few bytes as possible.
    ///
    /// # Errors
    /// [`EffectError`] for anything that [`Effect::decode`] refuses: an entry that cannot be read must not reach a log.
    pub fn encode(&self) -> Result<Bytes, EffectError> {
        self.check()?;
        let out = self.put();
        limit("length", out.len() as u64, EFFECT_BYTES_MAX as u64)?;
        Ok(out)
    }

    /// Checks the bounds that every reader enforces, except the length in bytes.
    fn check(&self) -> Result<(), EffectError> {
        limit("number of changes", self.changes.len() as u64, EFFECT_CHANGES_MAX as u64)?;
        limit("number of clients", self.forget.len() as u64, EFFECT_CHANGES_MAX as u64)?;
        if let Some(Record { number, done_below, .. }) = self.record {
            limit("done mark", done_below, number)?;
        }
        if let Some(KeyRange { begin, end }) = &self.clear {
            limit("begin", begin.len() as u64, ENGINE_KEY_BYTES_MAX as u64)?;
            limit("end", end.as_ref().map_or(0, |end| end.len() as u64), ENGINE_KEY_BYTES_MAX as u64)?;
        }
        for RowChange { key, .. } in &self.changes {
            limit("key", key.len() as u64, ENGINE_KEY_BYTES_MAX as u64)?;
            check_kind(key, || self.bytes())?;
        }
        Ok(())
    }

    /// Returns the bytes that [`Effect::put`] writes: the memtable keeps the entry, and its excess would be in no budget.
    fn encoded_bytes(&self) -> usize {
        let clear = self.clear.as_ref().map_or(0, |range| pair_bytes(&range.begin, range.end.as_ref()));
        let changes = self.changes.iter().map(|change| pair_bytes(&change.key, change.value.as_ref())).sum::<usize>();
        let forget = match self.forget.len() {
            0 => 0,
            count => number_bytes(count as u64) + CLIENT_BYTES * count,
        };
        let record = self.record.map_or(0, |Record { number, done_below, outcome, .. }| {
            let outcome = if self.repeats(outcome) { 1 } else { outcome.bytes() };
            CLIENT_BYTES + number_bytes(number) + number_bytes(number.saturating_sub(done_below)) + outcome
        });
        HEAD_BYTES + clear + number_bytes(self.changes.len() as u64) + changes + forget + record
    }

    /// Returns whether the outcome is the revision of the row that the first change sets.
    fn repeats(&self, outcome: Outcome) -> bool {
        matches!(outcome, Outcome::Written(revision) if written_by(&self.changes) == Some(revision))
    }

    fn put(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.encoded_bytes());
        let flag = |flag: u8, there: bool| if there { flag } else { 0 };
        out.put_u8(FORMAT);
        out.put_u64(self.at.get());
        let forgets = flag(FORGETS, !self.forget.is_empty());
        out.put_u8(flag(CLEARS, self.clear.is_some()) | flag(RECORDS, self.record.is_some()) | forgets);
        if let Some(range) = &self.clear {
            put_pair(&mut out, &range.begin, range.end.as_ref());
        }
        put_number(&mut out, self.changes.len() as u64);
        for change in &self.changes {
            put_pair(&mut out, &change.key, change.value.as_ref());
        }
        if !self.forget.is_empty() {
            put_number(&mut out, self.forget.len() as u64);
            self.forget.iter().for_each(|client| out.put_slice(client.get().as_bytes()));
        }
        if let Some(Record { client, number, done_below, outcome }) = &self.record {
            out.put_slice(client.get().as_bytes());
            put_number(&mut out, *number);
            put_number(&mut out, number.saturating_sub(*done_below));
            match self.repeats(*outcome) {
                true => out.put_u8(WRITTEN_BY_CHANGE),
                false => outcome.put(&mut out),
            }
        }
        debug_assert_eq!(out.len(), self.encoded_bytes(), "the reserved bytes are those written");
        Bytes::from(out)
    }

    /// Returns the encoded form, and the effect with keys and values that share its memory: rows kept from it hold one
    /// allocation, and the original ones are freed.
    ///
    /// # Errors
    /// As [`Effect::encode`].
    pub fn into_entry(mut self) -> Result<(Bytes, Self), EffectError> {
        let entry = self.encode()?;
        let mut at = HEAD_BYTES;
        if let Some(KeyRange { begin, end }) = &mut self.clear {
            at = share_pair(&entry, at, begin, end);
        }
        at += number_bytes(self.changes.len() as u64);
        for RowChange { key, value } in &mut self.changes {
            at = share_pair(&entry, at, key, value);
        }
        Ok((entry, self))
    }

    /// Decodes an effect; keys and values share the memory of `bytes`.
    ///
    /// # Errors
    /// [`EffectError`] for anything [`Effect::encode`] does not write.
    pub fn decode(bytes: &Bytes) -> Result<Self, EffectError> {
        limit("length", bytes.len() as u64, EFFECT_BYTES_MAX as u64)?;
        let mut reader = ByteReader { bytes, at: 0 };
        match reader.byte("format")? {
            FORMAT => {}
            found if found < FORMAT => return Err(EffectError::OlderFormat { found }),
            found => return Err(EffectError::Format { found }),
        }
        let at = Millis::new(u64::from_be_bytes(reader.array("time")?));
        let flags = reader.byte("flags")?;
        limit("flags", flags.into(), (CLEARS | RECORDS | FORGETS).into())?;
        let clear = match flags & CLEARS {
            0 => None,
            _ => {
                let (begin, end) = reader.pair(("begin", ENGINE_KEY_BYTES_MAX), ("end", ENGINE_KEY_BYTES_MAX))?;
                Some(KeyRange { begin, end })
            }
        };
        let found = reader.number("number of changes")?;
        // At most as many as the remaining bytes can hold, so that a false count reserves no memory.
        let room = (bytes.len() - reader.at) / CHANGE_BYTES_MIN;
        let count = limit("number of changes", found, room.min(EFFECT_CHANGES_MAX) as u64)?;
        let mut changes = Vec::with_capacity(count);
        for _ in 0..count {
            let (key, value) = reader.pair(("key", ENGINE_KEY_BYTES_MAX), ("value", EFFECT_BYTES_MAX))?;
            check_kind(&key, || bytes.len())?;
            changes.push(RowChange { key, value });
        }
        let forget = if flags & FORGETS == 0 { Vec::new() } else { reader.clients()? };
        let record = if flags & RECORDS == 0 { None } else { Some(reader.record(&changes)?) };
        match bytes.len() - reader.at {
            0 => Ok(Self { at, clear, changes, forget, record }),
            extra => Err(EffectError::Extra { bytes: bytes.len(), extra }),
        }
    }
}

/// Returns the revision of the user row that the first change sets.
fn written_by(changes: &[RowChange]) -> Option<Revision> {
    let first = changes.first().filter(|change| change.key.first() == Some(&KIND_VALUE))?;
    first.value.as_ref().and_then(|row| revision_of(row))
}

/// Refuses a key without a kind, or of a client's row, in an entry of so many bytes.
fn check_kind(key: &[u8], bytes: impl FnOnce() -> usize) -> Result<(), EffectError> {
    match key.first() {
        None => Err(EffectError::Short { bytes: bytes(), what: "kind byte" }),
        Some(&KIND_CLIENT) => Err(EffectError::ClientRow),
        Some(_) => Ok(()),
    }
}

/// Returns the bytes that [`put_pair`] writes.
fn pair_bytes(first: &[u8], second: Option<&Bytes>) -> usize {
    let second = second.map_or(number_bytes(0), |second| number_bytes(second.len() as u64 + 1) + second.len());
    number_bytes(first.len() as u64) + first.len() + second
}

/// Writes a field, and another one that may be missing.
fn put_pair(out: &mut Vec<u8>, first: &[u8], second: Option<&Bytes>) {
    put_number(out, first.len() as u64);
    out.put_slice(first);
    match second {
        None => put_number(out, 0),
        Some(second) => {
            put_number(out, second.len() as u64 + 1);
            out.put_slice(second);
        }
    }
}

/// Makes a pair written by [`put_pair`] at this offset share the entry's memory. Returns its end.
fn share_pair(entry: &Bytes, at: usize, first: &mut Bytes, second: &mut Option<Bytes>) -> usize {
    let begin = at + number_bytes(first.len() as u64);
    let end = begin + first.len();
    *first = entry.slice(begin..end);
    let Some(second) = second else { return end + number_bytes(0) };
    let begin = end + number_bytes(second.len() as u64 + 1);
    let end = begin + second.len();
    *second = entry.slice(begin..end);
    end
}

fn limit(what: &'static str, found: u64, limit: u64) -> Result<usize, EffectError> {
    match usize::try_from(found) {
        Ok(size) if found <= limit => Ok(size),
        _ => Err(EffectError::Limit { what, found, limit }),
    }
}

struct ByteReader<'a> {
    bytes: &'a Bytes,
    at: usize,
}

impl ByteReader<'_> {
    fn take(&mut self, length: usize, what: &'static str) -> Result<Bytes, EffectError> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len());
        let Some(end) = end else { return Err(EffectError::Short { bytes: self.bytes.len(), what }) };
        let taken = self.bytes.slice(self.at..end);
        self.at = end;
        Ok(taken)
    }

    /// Reads a field of fixed length, without sharing its memory.
    fn array<const BYTES: usize>(&mut self, what: &'static str) -> Result<[u8; BYTES], EffectError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let array = rest.first_chunk().ok_or(EffectError::Short { bytes: self.bytes.len(), what })?;
        self.at += BYTES;
        Ok(*array)
    }

    fn byte(&mut self, what: &'static str) -> Result<u8, EffectError> {
        self.array(what).map(|[byte]| byte)
    }

    fn client(&mut self) -> Result<ClientId, EffectError> {
        self.array("client").map(|client| ClientId::new(Uuid::from_bytes(client)))
    }

    fn clients(&mut self) -> Result<Vec<ClientId>, EffectError> {
        let found = self.number("number of clients")?;
        let room = (self.bytes.len() - self.at) / CLIENT_BYTES;
        let count = limit("number of clients", found, room.min(EFFECT_CHANGES_MAX) as u64)?;
        if count == 0 {
            return Err(EffectError::Padded { what: "number of clients" });
        }
        (0..count).map(|_| self.client()).collect()
    }

    fn record(&mut self, changes: &[RowChange]) -> Result<Record, EffectError> {
        let client = self.client()?;
        let number = self.number("number")?;
        let done = self.number("done mark")?;
        limit("done mark", done, number)?;
        let written = written_by(changes);
        let short = EffectError::Short { bytes: self.bytes.len(), what: "outcome" };
        let mut rest = &self.bytes[self.at..];
        let outcome = match rest.first() {
            Some(&WRITTEN_BY_CHANGE) => {
                self.at += 1;
                Outcome::Written(written.ok_or(short)?)
            }
            _ => {
                let outcome = Outcome::take(&mut rest).ok_or(short)?;
                self.at = self.bytes.len() - rest.len();
                if matches!(outcome, Outcome::Written(revision) if written == Some(revision)) {
                    return Err(EffectError::Padded { what: "outcome" });
                }
                outcome
            }
        };
        Ok(Record { client, number, done_below: number - done, outcome })
    }

    /// Reads a pair written by [`put_pair`]: two fields, each with its name and limit.
    fn pair(
        &mut self,
        (first, first_max): (&'static str, usize),
        (second, second_max): (&'static str, usize),
    ) -> Result<(Bytes, Option<Bytes>), EffectError> {
        let length = limit(first, self.number(first)?, first_max as u64)?;
        let found = self.take(length, first)?;
        let beside = match self.number(second)? {
            0 => None,
            more => Some(self.take(limit(second, more - 1, second_max as u64)?, second)?),
        };
        Ok((found, beside))
    }

    fn number(&mut self, what: &'static str) -> Result<u64, EffectError> {
        let mut rest = &self.bytes[self.at..];
        let number = take_number(&mut rest);
        self.at = self.bytes.len() - rest.len();
        number.map_err(|error| match error {
            NumberError::Short => EffectError::Short { bytes: self.bytes.len(), what },
            NumberError::Padded => EffectError::Padded { what },
            NumberError::TooLarge => EffectError::Limit { what, found: u64::MAX, limit: EFFECT_BYTES_MAX as u64 },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::row;
    use proptest::prelude::*;

    fn effect() -> impl Strategy<Value = Effect> {
        let bytes = |range| proptest::collection::vec(any::<u8>(), range).prop_map(Bytes::from);
        let key = bytes(1..200).prop_filter("the row of a client", |key| key[0] != KIND_CLIENT);
        let change = (key, proptest::option::of(bytes(0..300))).prop_map(|(key, value)| RowChange { key, value });
        let range =
            (bytes(0..200), proptest::option::of(bytes(0..200))).prop_map(|(begin, end)| KeyRange { begin, end });
        let parts = (proptest::option::of(range), proptest::collection::vec(change, 0..8));
        let clients = proptest::collection::vec(any::<u128>().prop_map(client), 0..4);
        (any::<u64>(), parts, clients, proptest::option::of(record())).prop_map(
            |(at, (clear, changes), forget, record)| Effect {
                clear,
                forget,
                record,
                ..Effect::new(Millis::new(at), changes)
            },
        )
    }

    fn client(number: u128) -> ClientId {
        ClientId::new(Uuid::from_u128(number))
    }

    fn record() -> impl Strategy<Value = Record> {
        let outcome = prop_oneof![
            any::<u64>().prop_map(|revision| Outcome::Written(Revision::new(revision))),
            any::<bool>().prop_map(Outcome::Deleted),
            Just(Outcome::NotANumber),
            (any::<u32>(), any::<u64>()).prop_map(|(removed, at)| Outcome::Applied(removed, Revision::new(at))),
            (any::<u32>(), any::<u64>()).prop_map(|(check, at)| Outcome::CheckFailed(check, Revision::new(at))),
        ];
        (any::<u128>(), any::<u64>(), 0..=100_u64, outcome).prop_map(|(owner, number, done, outcome)| Record {
            client: client(owner),
            number,
            done_below: number.saturating_sub(done),
            outcome,
        })
    }

    #[test]
    fn recorded_put_repeats_no_revision() {
        let put = RowChange::set(row::value_key(b"k"), row::encode_value(Revision::new(7), b"v"));
        let of = |outcome| {
            let record = Record { client: client(3), number: 1_000, done_below: 990, outcome };
            Effect { record: Some(record), ..Effect::new(Millis::new(9), vec![put.clone()]) }
        };
        let plain = Effect::new(Millis::new(9), vec![put.clone()]).encode().unwrap();
        let bytes = |revision| of(Outcome::Written(Revision::new(revision))).encode().unwrap().len() - plain.len();
        assert_eq!((bytes(7), bytes(8)), (20, 28));
    }

    proptest! {
        #[test]
        fn effects_round_trip(effect in effect()) {
            let entry = effect.encode().unwrap();
            prop_assert_eq!(entry.len(), effect.encoded_bytes());
            prop_assert_eq!(Effect::decode(&entry).unwrap(), effect);
        }

        #[test]
        fn entry_and_its_rows_share_one_allocation(effect in effect()) {
            let encoded = effect.encode().unwrap();
            let (entry, shared) = effect.clone().into_entry().unwrap();
            prop_assert_eq!((&entry, &shared), (&encoded, &effect));
            let within = |part: &Bytes| entry.as_ptr_range().contains(&part.as_ptr()) || part.is_empty();
            prop_assert!(shared.changes.iter().all(|change| within(&change.key) && change.value.iter().all(within)));
            prop_assert!(shared.clear.iter().all(|range| within(&range.begin) && range.end.iter().all(within)));
        }

        #[test]
        fn truncated_effect_is_rejected(effect in effect(), part in 0.0..1.0_f64) {
            let whole = effect.encode().unwrap();
            let length = ((whole.len() - 1) as f64 * part) as usize;
            prop_assert!(Effect::decode(&whole.slice(..length)).is_err());
        }

        #[test]
        fn decode_rejects_or_round_trips_any_bytes(effect in effect(), mut bytes in proptest::collection::vec(any::<u8>(), 0..100), format in 0..3_u8, at: proptest::sample::Index, byte: u8) {
            if format > 0 && !bytes.is_empty() {
                bytes[0] = format + 1;
            }
            let mut damaged = effect.encode().unwrap().to_vec();
            let length = damaged.len();
            damaged[at.index(length)] = byte;
            for bytes in [bytes, damaged].map(Bytes::from) {
                if let Ok(effect) = Effect::decode(&bytes) {
                    prop_assert_eq!(effect.encode().unwrap(), bytes);
                }
            }
        }
    }

    #[test]
    fn decode_error_names_invalid_bytes() {
        assert_eq!(Effect::decode(&Bytes::from_static(&[9, 0])), Err(EffectError::Format { found: 9 }));
        assert_eq!(Effect::decode(&Bytes::from_static(&[1, 0])), Err(EffectError::OlderFormat { found: 1 }));
        let mut long = Effect::new(Millis::new(1), vec![]).encode().unwrap().to_vec();
        long.push(0);
        assert_eq!(Effect::decode(&Bytes::from(long)), Err(EffectError::Extra { bytes: 12, extra: 1 }));
        let lying = [&[FORMAT][..], &[0; 9], &[0xFF; 9], &[0x01]].concat();
        assert!(matches!(Effect::decode(&Bytes::from(lying)), Err(EffectError::Limit { .. })));
        let padded = [&[FORMAT][..], &[0; 9], &[0x80, 0]].concat();
        assert_eq!(Effect::decode(&padded.into()), Err(EffectError::Padded { what: "number of changes" }));
    }

    #[test]
    fn ordinary_effect_has_a_short_form() {
        let change = RowChange::set(Bytes::from_static(b"k"), Bytes::from_static(b"v"));
        let written = [&[FORMAT][..], &[0, 0, 0, 0, 0, 0, 0, 9, 0], &[1, 1, b'k', 2, b'v']].concat();
        assert_eq!(Effect::new(Millis::new(9), vec![change]).encode().unwrap(), written);
    }

    /// Numbered changes with keys of `key` bytes and values of `value` bytes.
    fn changes(count: usize, key: usize, value: usize) -> Vec<RowChange> {
        let value = Bytes::from(vec![b'v'; value]);
        let key = |number: usize| Bytes::from(format!("{number:0key$}"));
        (0..count).map(|number| RowChange::set(key(number), value.clone())).collect()
    }

    /// Returns whether an effect can be encoded, and decodes unchanged.
    fn is_written(effect: Effect) -> bool {
        let Ok(entry) = effect.encode() else {
            assert!(effect.into_entry().is_err());
            return false;
        };
        assert_eq!(Effect::decode(&entry).as_ref(), Ok(&effect));
        true
    }

    #[test]
    fn encode_rejects_what_decode_rejects_at_each_bound() {
        let of = |changes| Effect::new(Millis::new(1), changes);
        let at_bound = |bound: usize, make: &dyn Fn(usize) -> Effect| {
            assert_eq!([bound - 1, bound, bound + 1].map(|size| is_written(make(size))), [true, true, false]);
        };
        at_bound(EFFECT_CHANGES_MAX, &|count| of(changes(count, 5, 1)));
        at_bound(ENGINE_KEY_BYTES_MAX, &|bytes| of(changes(1, bytes, 1)));
        let bytes = |length: usize| Bytes::from(vec![b'k'; length]);
        let clear = |begin: usize, end: usize| KeyRange { begin: bytes(begin), end: Some(bytes(end)) };
        at_bound(ENGINE_KEY_BYTES_MAX, &|bytes| Effect { clear: Some(clear(bytes, 1)), ..of(vec![]) });
        at_bound(ENGINE_KEY_BYTES_MAX, &|bytes| Effect { clear: Some(clear(1, bytes)), ..of(vec![]) });
        // Count, and two lengths beside the key of one byte.
        let overhead = HEAD_BYTES + 1 + 1 + 1 + 4;
        at_bound(EFFECT_BYTES_MAX, &|bytes| of(changes(1, 1, bytes - overhead)));
        let huge = changes(8, 3, EFFECT_BYTES_MAX / 8);
        assert!(!is_written(of(huge)));
        assert!(!is_written(of(vec![RowChange::remove(Bytes::new())])));
    }

    #[test]
    fn decode_rejects_what_encode_rejects() {
        let of = |changes| Effect::new(Millis::new(1), changes);
        let client = |number: usize| ClientId::new(Uuid::from_u128(number as u128));
        let forget = (0..=EFFECT_CHANGES_MAX).map(client).collect();
        let long = of(changes(1, 1, EFFECT_BYTES_MAX));
        for effect in [of(changes(EFFECT_CHANGES_MAX + 1, 5, 1)), Effect { forget, ..of(vec![]) }, long] {
            assert!(matches!(effect.encode(), Err(EffectError::Limit { .. })));
            assert!(matches!(Effect::decode(&effect.put()), Err(EffectError::Limit { .. })));
        }
    }

    /// Such a row would replace the window that the client's records lead to.
    #[test]
    fn entry_cannot_set_row_of_client() {
        for change in [RowChange::remove, |key| RowChange::set(key, Bytes::new())] {
            let effect = Effect::new(Millis::new(1), vec![change(row::client_key(client(7)))]);
            assert_eq!(effect.encode(), Err(EffectError::ClientRow));
            assert_eq!(Effect::decode(&effect.put()), Err(EffectError::ClientRow));
        }
    }

    #[test]
    fn effect_rows_include_log_time() {
        let effect = Effect::new(Millis::new(5), vec![]);
        let changes: Vec<RowChange> = effect.rows().collect();
        assert_eq!(changes.len(), 1);
        assert_eq!(row::decode_millis(changes[0].value.as_ref().unwrap()).unwrap(), Millis::new(5));
    }
}

//! `archon kv put | get | del | cas | incr | batch | scan | export | import`.

pub(crate) mod batch;
pub(crate) mod export;
pub(crate) mod import;
mod key_form;
mod progress;
pub(crate) mod rows;

use crate::args::ScanArgs;
use crate::documents::{CounterValue, Entry, Key, ValueText, WrittenKey};
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output};
use archon_client::{Client, Error, ErrorKind, KeyText, PutOptions, Revision, StaleValue, Value};
use archon_types::limits::{self, VALUE_BYTES_MAX};
use bytes::Bytes;
pub(crate) use key_form::KeyForm;
use std::io::Read;
use std::time::Duration;

/// Longest value shown in a table, in characters; `-o json` and `kv get` print the whole value.
const SHOWN_CHARS_MAX: usize = 60;
/// Most keys per request.
const PAGE_KEYS_MAX: u32 = 1_000;

/// Bytes of keys and values after which a listing ends, because it is held in memory until it is printed.
const LISTED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Writes a key. On success only the revision is printed, on standard error.
pub(crate) async fn put(
    key: &KeyText,
    value: Bytes,
    ttl: Option<Duration>,
    client: &Client,
    output: &Output,
) -> Result<Exit, Failure> {
    let options = ttl.map_or_else(PutOptions::default, |ttl| PutOptions::default().ttl(ttl));
    written(key, client.put_with(key, value, options).await?, output)
}

fn written(key: &KeyText, revision: Revision, output: &Output) -> Result<Exit, Failure> {
    let revision = revision.get();
    if output.is_json() {
        output.json(&WrittenKey { key: key.clone(), revision })?;
    } else {
        output.talk(format!("revision {revision}"));
    }
    Ok(Exit::Done)
}

/// Writes a key if it has the expected revision.
pub(crate) async fn compare_and_set(
    key: &KeyText,
    expected: u64,
    value: Bytes,
    client: &Client,
    output: &Output,
) -> Result<Exit, Failure> {
    match client.compare_and_set(key, Revision::new(expected), value).await {
        Ok(revision) => written(key, revision, output),
        Err(Error::ConditionFailed { found }) => Err(condition_failed(key, expected, found.get())),
        Err(error) => Err(error.into()),
    }
}

/// Explains why a compare-and-set failed.
fn condition_failed(key: &KeyText, expected: u64, found: u64) -> Failure {
    let message = match (expected, found) {
        (0, found) => format!("{key} exists already, with revision {found}; nothing was changed"),
        (expected, 0) => format!("{key} is absent, not at revision {expected}; nothing was changed"),
        (expected, found) => format!("{key} has revision {found}, not {expected}; nothing was changed"),
    };
    let refused = Failure { kind: ErrorKind::ConditionFailed.as_str(), ..Failure::new(Exit::Refused, message) };
    refused.with_remedy("read it again (`archon kv get KEY -o json`) and retry with the new revision")
}

/// Adds to a number and prints the sum.
pub(crate) async fn increment(key: &KeyText, by: i64, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let sum = client.increment(key, by).await?;
    if output.is_json() {
        let (key, value, revision) = (key.clone(), sum.value.to_string(), sum.revision.get());
        output.json(&CounterValue { key, value, revision })?;
    } else {
        output.line(sum.value.to_string())?;
    }
    Ok(Exit::Done)
}

/// Prints only the value. An absent key yields a document as well, and a separate exit code.
pub(crate) async fn get(key: &KeyText, raw: bool, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let found = client.get(key).await?;
    let document = key_document(key, found.as_ref());
    shown_alone(key, found, raw, &document, output)
}

/// Like [`get`], from any in-sync copy; the revision of the read is printed on standard error.
pub(crate) async fn get_stale(key: &KeyText, raw: bool, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let StaleValue { value, as_of, address } = client.get_stale(key).await?;
    let (as_of, document) = (as_of.get(), key_document(key, value.as_ref()));
    if !output.is_json() {
        output.talk(format!("as of revision {as_of} of its partition, at {address}; it may have changed since"));
    }
    let document = Key { as_of_revision: Some(as_of), address: Some(address), ..document };
    shown_alone(key, value, raw, &document, output)
}

fn shown_alone(
    key: &KeyText,
    found: Option<Value>,
    raw: bool,
    document: &Key,
    output: &Output,
) -> Result<Exit, Failure> {
    if output.is_json() {
        output.json(document)?;
    } else if let Some(found) = &found {
        output.value(&found.value, raw)?;
    }
    if found.is_some() { Ok(Exit::Done) } else { Err(absent(key)) }
}

fn key_document(key: &KeyText, found: Option<&Value>) -> Key {
    let value = found.map(|found| ValueText::of(&found.value)).unwrap_or_default();
    let revision = found.map(|found| found.revision.get());
    let expires_at_ms = found.and_then(|found| found.expires_at_ms);
    let (key, existed) = (key.clone(), found.is_some());
    Key { key, existed, value, revision, expires_at_ms, as_of_revision: None, address: None }
}

/// Removes a key.
pub(crate) async fn delete(key: &KeyText, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let existed = client.delete(key).await?;
    if output.is_json() {
        output.json(&Key { existed, ..key_document(key, None) })?;
    }
    if existed { Ok(Exit::Done) } else { Err(absent(key)) }
}

/// Lists keys.
pub(crate) async fn scan(args: &ScanArgs, keys: &ScanKeys, client: &Client, output: &Output) -> Result<Exit, Failure> {
    if let Some(text) = nothing_between(keys) {
        output.talk(text);
    }
    let (found, more) = pull(args, keys, client).await?;
    if output.is_json() {
        let entries: Vec<Entry> = found.iter().map(entry).collect();
        output.json(&entries)?;
    } else {
        let columns = [Column::text("KEY"), Column::number("REVISION"), Column::text("VALUE")];
        let row = |one: &archon_client::Entry| {
            vec![keys.form.cell(&one.key), one.revision.get().to_string(), shown(&one.value)]
        };
        output.rows(&columns, found.iter().map(row).collect(), "no such keys")?;
    }
    if let Some(last) = found.last().filter(|_| more) {
        let after = keys.form.after(&last.key);
        output.talk(format!("there may be more: give {after}, or a higher --limit"));
    }
    Ok(Exit::Done)
}

/// Returns a note if no key can be between the bounds.
fn nothing_between(keys: &ScanKeys) -> Option<String> {
    let (from, to) = (keys.from.as_ref()?, keys.to.as_ref()?);
    (from >= to).then(|| {
        format!(
            "no key is from {from} on and less than {to}: --from is the lower end, also with --reverse, and --to \
                 is not included"
        )
    })
}

/// Keys that select the rows of a scan.
#[derive(Debug)]
pub(crate) struct ScanKeys {
    form: KeyForm,
    prefix: KeyText,
    after: KeyText,
    from: Option<KeyText>,
    to: Option<KeyText>,
}

impl ScanKeys {
    /// Reads the options, and rejects a prefix or bound that no key can have.
    ///
    /// # Errors
    /// The fault of the prefix or bound.
    pub(crate) fn new(args: &ScanArgs, form: KeyForm) -> Result<Self, Failure> {
        let read = |what: &str, text: &str| {
            let key = form.read(text)?;
            let length = key.0.len();
            match length > limits::KEY_BYTES_MAX {
                true => {
                    Err(Failure::usage(format!("{what} has {length} bytes; the maximum is 4096"), "give a shorter one"))
                }
                false => Ok(key),
            }
        };
        Ok(Self {
            form,
            prefix: read("the prefix", args.prefix())?,
            after: read("the key after --after", &args.after)?,
            from: args.from.as_deref().map(|from| read("the key after --from", from)).transpose()?,
            to: args.to.as_deref().map(|to| read("the key after --to", to)).transpose()?,
        })
    }
}

/// Reads pages until the limit; returns true if more keys may follow.
async fn pull(args: &ScanArgs, keys: &ScanKeys, client: &Client) -> Result<(Vec<archon_client::Entry>, bool), Failure> {
    let mut found: Vec<archon_client::Entry> = Vec::new();
    let mut bytes = 0;
    loop {
        let wanted = (args.limit - found.len() as u32).min(PAGE_KEYS_MAX);
        let after = found.last().map_or(&keys.after.0, |one| &one.key);
        let mut scan = client.scan(&keys.prefix).after(after).limit(wanted);
        scan = keys.from.iter().fold(scan, |scan, from| scan.from(from));
        scan = keys.to.iter().fold(scan, |scan, to| scan.to(to));
        let page = if args.reverse { scan.reverse() } else { scan }.page().await?;
        let ended = !page.more || page.entries.is_empty();
        bytes += page.entries.iter().map(|one| one.key.len() + one.value.len()).sum::<usize>();
        found.extend(page.entries);
        if ended || bytes >= LISTED_BYTES_MAX || found.len() >= args.limit as usize {
            return Ok((found, page.more));
        }
    }
}

/// Returns the value of `put`: the argument itself, or standard input for `-`.
///
/// # Errors
/// A value above the limit, or unreadable standard input.
pub(crate) fn value_of(argument: &str) -> Result<Bytes, Failure> {
    let value = if argument == "-" {
        let mut value = Vec::new();
        // One byte above the limit detects a value that is too long without reading an endless stream.
        std::io::stdin()
            .lock()
            .take(VALUE_BYTES_MAX as u64 + 1)
            .read_to_end(&mut value)
            .map_err(|error| Failure::failed(format!("reading the value from standard input: {error}")))?;
        Bytes::from(value)
    } else {
        Bytes::copy_from_slice(argument.as_bytes())
    };
    limits::check_value(&value).map_err(|_| {
        Failure::usage(
            format!("the value has more than {VALUE_BYTES_MAX} bytes"),
            "cut it into several keys; values may have up to 1 MiB",
        )
    })?;
    Ok(value)
}

fn absent(key: &KeyText) -> Failure {
    Failure::new(Exit::NotFound, format!("key {key} does not exist"))
}

fn entry(found: &archon_client::Entry) -> Entry {
    let archon_client::Entry { key, value, revision, expires_at_ms } = found;
    let (key, value) = (KeyText(key.clone()), ValueText::of(value));
    Entry { key, value, revision: revision.get(), expires_at_ms: *expires_at_ms }
}

/// Formats a value for a cell: one line, no control characters, bounded length.
fn shown(value: &[u8]) -> String {
    let head = &value[..value.len().min(SHOWN_CHARS_MAX * 4)];
    let text = String::from_utf8_lossy(head);
    let mut shown: String = text.chars().map(|c| if c.is_control() { '·' } else { c }).take(SHOWN_CHARS_MAX).collect();
    if text.chars().count() > SHOWN_CHARS_MAX || head.len() < value.len() {
        shown.push_str(&format!("… ({} bytes)", value.len()));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reversed_bounds_are_reported() {
        use clap::Parser as _;
        let said = |line: &[&str]| {
            let words = ["archon", "kv", "scan"].iter().chain(line);
            match crate::args::Cli::try_parse_from(words).expect("a command line").verb {
                crate::args::Verb::Kv(crate::args::KvArgs { verb: crate::args::KvVerb::Scan(args), .. }) => {
                    nothing_between(&ScanKeys::new(&args, KeyForm::Text).expect("bounds"))
                }
                other => panic!("{other:?}"),
            }
        };
        let text = said(&["--from", "2026-03", "--to", "2026-02", "--reverse"]).expect("nothing is between");
        assert!(text.contains("from \"2026-03\" on and less than \"2026-02\""), "{text}");
        assert!(said(&["--from", "a", "--to", "a"]).is_some());
        assert_eq!((said(&["--from", "a", "--to", "b"]), said(&["--from", "a"]), said(&[])), (None, None, None));
    }

    #[test]
    fn failed_condition_has_one_name_alone_and_in_a_batch() {
        let failure = condition_failed(&KeyText::new("k"), 17, 18);
        assert_eq!((failure.kind, failure.exit), ("condition_failed", Exit::Refused));
    }

    #[test]
    fn values_in_cells_cannot_break_the_table() {
        assert_eq!(shown(b"a\nb\x1b[31m"), "a·b·[31m");
        assert!(shown(&vec![b'x'; 1000]).ends_with("… (1000 bytes)"));
        assert_eq!(shown(b"athens"), "athens");
    }

    #[test]
    fn json_marks_keys_and_values_that_are_no_text() {
        let entry = |key: &'static [u8], value: &'static [u8], expires_at_ms| {
            let (key, value) = (Bytes::from_static(key), Bytes::from_static(value));
            serde_json::to_value(entry(&archon_client::Entry { key, value, revision: Revision::new(7), expires_at_ms }))
                .unwrap()
        };
        let binary = entry(b"k\xfe", b"\xff\x00", None);
        assert_eq!(binary, serde_json::json!({"key": {"hex": "6bfe"}, "value_hex": "ff00", "revision": 7}));
        let text = entry(b"k", b"v", Some(9));
        assert_eq!(text, serde_json::json!({"key": "k", "value": "v", "revision": 7, "expires_at_ms": 9}));
    }

    #[test]
    fn absent_key_is_a_document_for_get_and_get_stale() {
        let absent = serde_json::json!({"key": "k", "existed": false});
        assert_eq!(serde_json::to_value(key_document(&KeyText::new("k"), None)).unwrap(), absent);
        let mut found = Value { value: Bytes::from_static(b"v"), revision: Revision::new(7), expires_at_ms: None };
        let mut expected = serde_json::json!({"key": "k", "existed": true, "value": "v", "revision": 7});
        assert_eq!(serde_json::to_value(key_document(&KeyText::new("k"), Some(&found))).unwrap(), expected);
        found.expires_at_ms = Some(9);
        expected["expires_at_ms"] = 9.into();
        assert_eq!(serde_json::to_value(key_document(&KeyText::new("k"), Some(&found))).unwrap(), expected);
    }

    #[test]
    fn oversized_keys_and_values_are_rejected_locally() {
        for key in ["k".repeat(4097), String::new()] {
            assert_eq!(KeyForm::Text.key(&key).unwrap_err().exit, Exit::Usage);
        }
        assert_eq!(value_of(&"v".repeat(VALUE_BYTES_MAX + 1)).unwrap_err().exit, Exit::Usage);
        assert!(value_of(&"v".repeat(VALUE_BYTES_MAX)).is_ok());
    }
}

//! `archon kv batch`: several operations in one call, one per line.

use super::{KeyForm, condition_failed, shown};
use crate::documents::{Outcome, ValueText};
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output, count_text};
use crate::text_input;
use archon_client::{Answer, Client, Error, ErrorKind, KeyText, Op, Revision, TransactionOutcome};
use archon_types::Millis;
use archon_types::limits::{BATCH_BYTES_MAX, BATCH_OPS_MAX, check_value};
use bytes::Bytes;
use std::io::Read;
use std::path::Path;

/// Largest accepted text: a JSON string may use six characters for one byte.
const TEXT_BYTES_MAX: u64 = 6 * BATCH_BYTES_MAX as u64 + 1024 * 1024;

/// Operation of one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    line: usize,
    key: KeyText,
    op: Op,
}

/// Reads the operations from a file, or from standard input.
///
/// # Errors
/// An unreadable file, more operations than a batch can hold, or the first invalid line.
pub(crate) fn read(file: Option<&Path>, form: KeyForm) -> Result<Vec<Step>, Failure> {
    let file = file.filter(|path| path.as_os_str() != "-");
    let name = file.map_or_else(|| "standard input".to_owned(), |path| path.display().to_string());
    let wrong = |error: std::io::Error| Failure::usage(format!("reading {name}: {error}"), "name a file of lines");
    let mut text = Vec::new();
    let reader: Box<dyn Read> = match file {
        Some(path) => Box::new(std::fs::File::open(path).map_err(wrong)?),
        None => Box::new(std::io::stdin().lock()),
    };
    reader.take(TEXT_BYTES_MAX + 1).read_to_end(&mut text).map_err(wrong)?;
    if text.len() as u64 > TEXT_BYTES_MAX {
        return Err(too_large(&format!("{name} is too long for one batch")));
    }
    let text = text_input::decode(&text)
        .map_err(|problem| Failure::usage(format!("{name}: {problem}"), "write binary values with `archon kv put`"))?;
    parse(text, &name, form)
}

fn too_large(message: &str) -> Failure {
    let limit = format!("a batch has at most {BATCH_OPS_MAX} operations and 4 MiB of keys and values; cut it in parts");
    Failure::usage(message, limit)
}

fn parse(text: &str, name: &str, form: KeyForm) -> Result<Vec<Step>, Failure> {
    let mut steps = Vec::new();
    let mut bytes = 0;
    for (index, line) in text.lines().enumerate() {
        let line_number = index + 1;
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let (key, op) = step(line.trim_start(), form).map_err(|problem| {
            let remedy = "lines are: put KEY VALUE | get KEY | del KEY | cas KEY REVISION VALUE | incr KEY [BY]";
            Failure::usage(format!("{name}, line {line_number}: {problem}"), remedy)
        })?;
        bytes += op.bytes();
        steps.push(Step { line: line_number, key, op });
        if steps.len() > BATCH_OPS_MAX || bytes > BATCH_BYTES_MAX {
            return Err(too_large(&format!("{name} holds too much for one batch: line {line_number} does not fit")));
        }
    }
    Ok(steps)
}

/// Parses one line that is not empty.
fn step(line: &str, form: KeyForm) -> Result<(KeyText, Op), String> {
    let (verb, rest) = line.split_once(char::is_whitespace).unwrap_or((line.trim_end(), ""));
    let (key, rest) = word(rest)?.ok_or_else(|| format!("{verb:?} needs a key"))?;
    let key = form.key(&key).map_err(|failure| failure.message)?;
    let bytes = key.0.clone();
    let nothing_more = |rest: &str| match rest.trim() {
        "" => Ok(()),
        more => Err(format!("{more:?} is too much after {verb} and its key; a key with spaces is written in quotes")),
    };
    let op = match verb {
        "put" => Op::Put { key: bytes, value: value(rest)? },
        "get" => nothing_more(rest).map(|()| Op::Get { key: bytes })?,
        "del" | "delete" => nothing_more(rest).map(|()| Op::Delete { key: bytes })?,
        "cas" => {
            let (revision, rest) = word(rest)?.ok_or("cas needs a revision and a value")?;
            let expected = revision.parse().map_err(|_| format!("{revision:?} is not a revision; write 0, 1, 2, …"))?;
            Op::CompareAndSet { key: bytes, expected: Revision::new(expected), value: value(rest)? }
        }
        "incr" | "increment" => {
            let (by, rest) = word(rest)?.unwrap_or_else(|| ("1".to_owned(), ""));
            nothing_more(rest)?;
            let by = by.parse().map_err(|_| format!("{by:?} is not a 64-bit integer"))?;
            Op::Increment { key: bytes, by }
        }
        other => return Err(format!("{other:?} is not an operation")),
    };
    Ok((key, op))
}

/// Returns the next word, and the text after the following space; a word that begins with a quote is a JSON string.
fn word(text: &str) -> Result<Option<(String, &str)>, String> {
    let text = text.trim_start();
    if text.is_empty() {
        return Ok(None);
    }
    if text.starts_with('"') {
        let (word, length) = quoted(text)?;
        let rest = &text[length..];
        return match rest.strip_prefix(char::is_whitespace) {
            Some(rest) => Ok(Some((word, rest))),
            None if rest.is_empty() => Ok(Some((word, ""))),
            None => Err(format!("a space is missing after {}", &text[..length])),
        };
    }
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    Ok(Some((word.to_owned(), rest)))
}

/// Parses the JSON string at the begin of `text`; returns it with its length in the text in bytes.
fn quoted(text: &str) -> Result<(String, usize), String> {
    let mut strings = serde_json::Deserializer::from_str(text).into_iter::<String>();
    match strings.next() {
        Some(Ok(string)) => Ok((string, strings.byte_offset())),
        Some(Err(error)) => Err(format!("a text in quotes must be a JSON string: {error}")),
        None => Err("a text in quotes must be a JSON string".to_owned()),
    }
}

/// Parses the rest of a line: literal, or a JSON string.
fn value(text: &str) -> Result<Bytes, String> {
    let value = if text.trim_start().starts_with('"') {
        let text = text.trim();
        let (value, length) = quoted(text)?;
        match &text[length..] {
            "" => value,
            more => return Err(format!("{more:?} is too much after the value")),
        }
    } else if text.is_empty() {
        return Err("a value is missing; write \"\" for an empty one".to_owned());
    } else {
        text.to_owned()
    };
    check_value(value.as_bytes()).map_err(|error| error.message)?;
    Ok(Bytes::from(value))
}

/// Runs the operations and prints the result of each.
pub(crate) async fn run(steps: Vec<Step>, form: KeyForm, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let results = client.batch(steps.iter().map(|step| step.op.clone()).collect()).await?;
    let mut failures = Vec::new();
    let mut outcomes = Vec::with_capacity(steps.len());
    let mut rows = Vec::with_capacity(steps.len());
    for (step, result) in steps.iter().zip(results) {
        let (outcome, shown) = match outcome(step, result) {
            Ok(done) => done,
            Err(failure) => {
                let (error, shown) = (Some(failure.body()), output.bad(&failure.message));
                failures.push((step.line, failure));
                (Outcome { ok: false, error, ..blank(step) }, shown)
            }
        };
        rows.push(row(&outcome, form, shown));
        outcomes.push(outcome);
    }
    print(&outcomes, rows, output)?;
    let (count, all) = (failures.len(), count_text(steps.len(), "operation", "operations"));
    match failures.into_iter().next() {
        None => Ok(Exit::Done),
        Some((line, first)) => Err(Failure {
            message: format!("{count} of {all} failed; the first, in line {line}: {}", first.message),
            ..first
        }),
    }
}

fn print(outcomes: &[Outcome], rows: Vec<Vec<String>>, output: &Output) -> Result<(), Failure> {
    if output.is_json() {
        return output.json(&outcomes);
    }
    let columns = [Column::number("LINE"), Column::text("OPERATION"), Column::text("KEY"), Column::number("REVISION")];
    let columns = [&columns[..], &[Column::text("RESULT")]].concat();
    output.rows(&columns, rows, "there was nothing to do: no line holds an operation")
}

/// Checks that all lines can be carried out together: each writes another key.
///
/// # Errors
/// The first line that cannot.
pub(crate) fn check_atomic(steps: &[Step]) -> Result<(), Failure> {
    for (number, step) in steps.iter().enumerate() {
        if !matches!(step.op, Op::Put { .. } | Op::Delete { .. } | Op::CompareAndSet { .. }) {
            let problem = format!("line {}: `{}` cannot be part of an atomic batch", step.line, blank(step).operation);
            return Err(Failure::usage(problem, "write put, del and cas; read and add with commands of their own"));
        }
        if steps[..number].iter().any(|other| other.key == step.key) {
            let problem = format!("line {}: an atomic batch writes {} twice", step.line, step.key);
            return Err(Failure::usage(problem, "leave out the first of the two lines"));
        }
    }
    Ok(())
}

/// Carries out all operations, or none, and prints what was written.
pub(crate) async fn run_atomic(
    steps: Vec<Step>,
    form: KeyForm,
    client: &Client,
    output: &Output,
) -> Result<Exit, Failure> {
    let mut transaction = client.transaction();
    for step in &steps {
        transaction = match &step.op {
            Op::CompareAndSet { key, expected, value } => transaction.check(key, *expected).put(key, value.clone()),
            Op::Put { key, value } => transaction.put(key, value.clone()),
            op => op.key().into_iter().fold(transaction, |transaction, key| transaction.delete(key)),
        };
    }
    let (revision, removed) = match steps.is_empty() {
        true => (Revision::ZERO, 0),
        false => match transaction.commit().await? {
            TransactionOutcome::Committed { revision, removed } => (revision, removed),
            TransactionOutcome::CheckFailed { key, found } => {
                let expected = steps.iter().find_map(|step| match &step.op {
                    Op::CompareAndSet { key: of, expected, .. } if *of == key => Some(expected.get()),
                    _ => None,
                });
                return Err(condition_failed(&KeyText(key), expected.unwrap_or(0), found.get()));
            }
        },
    };
    // The outcome counts removed values, and does not name their keys.
    let deletes = steps.iter().filter(|step| matches!(step.op, Op::Delete { .. })).count();
    let deleted = match removed {
        0 => "absent",
        _ if usize::try_from(removed) == Ok(deletes) => "removed",
        _ => "removed or absent",
    };
    let done = |step: &Step| match &step.op {
        Op::Delete { .. } => (blank(step), deleted),
        _ => (Outcome { revision: Some(revision.get()), ..blank(step) }, "written"),
    };
    let (outcomes, results): (Vec<_>, Vec<_>) = steps.iter().map(done).unzip();
    let rows = outcomes.iter().zip(results).map(|(outcome, result)| row(outcome, form, result.to_owned())).collect();
    print(&outcomes, rows, output)?;
    Ok(Exit::Done)
}

fn row(outcome: &Outcome, form: KeyForm, result: String) -> Vec<String> {
    vec![
        outcome.line.to_string(),
        outcome.operation.to_owned(),
        form.cell(&outcome.key.0),
        outcome.revision.map_or_else(|| "-".to_owned(), |revision| revision.to_string()),
        result,
    ]
}

/// Returns the document of an operation without results.
fn blank(step: &Step) -> Outcome {
    let operation = match &step.op {
        Op::Get { .. } => "get",
        Op::Put { .. } | Op::PutExpiring { expected: None, .. } => "put",
        Op::Delete { .. } => "del",
        Op::CompareAndSet { .. } | Op::PutExpiring { expected: Some(_), .. } => "cas",
        Op::Increment { .. } => "incr",
        Op::Scan { .. } => "scan",
        Op::GetMany(_) => "get_many",
        Op::Transaction(_) => "transaction",
    };
    let (line, key) = (step.line, step.key.clone());
    Outcome {
        line,
        operation,
        key,
        ok: true,
        existed: None,
        value: ValueText::default(),
        revision: None,
        expires_at_ms: None,
        error: None,
    }
}

/// Returns the result of one operation, for programs and for people, or the reason why it failed.
fn outcome(step: &Step, result: Result<Answer, Error>) -> Result<(Outcome, String), Failure> {
    let blank = blank(step);
    match result {
        Ok(Answer::Value(None)) => Ok((Outcome { existed: Some(false), ..blank }, "absent".to_owned())),
        Ok(Answer::Value(Some(found))) => {
            let (existed, revision) = (Some(true), Some(found.revision.get()));
            let expires_at_ms = found.expires.map(Millis::get);
            let value = ValueText::of(&found.value);
            Ok((Outcome { existed, value, revision, expires_at_ms, ..blank }, shown(&found.value)))
        }
        Ok(Answer::Written { revision }) => {
            Ok((Outcome { revision: Some(revision.get()), ..blank }, "written".to_owned()))
        }
        Ok(Answer::Deleted { existed }) => {
            let shown = if existed { "removed" } else { "was absent" };
            Ok((Outcome { existed: Some(existed), ..blank }, shown.to_owned()))
        }
        Ok(Answer::Counter { value, revision }) => {
            let (revision, text) = (Some(revision.get()), value.to_string());
            Ok((Outcome { revision, value: ValueText::of(text.as_bytes()), ..blank }, text))
        }
        Ok(Answer::ConditionFailed { revision }) => {
            let expected = match &step.op {
                Op::CompareAndSet { expected, .. } | Op::PutExpiring { expected: Some(expected), .. } => expected.get(),
                _ => 0,
            };
            Err(condition_failed(&step.key, expected, revision.get()))
        }
        Ok(Answer::NotANumber) => Err(Error::NotANumber.into()),
        Ok(other @ (Answer::Page { .. } | Answer::Values(_) | Answer::Applied { .. } | Answer::CheckFailed { .. })) => {
            let failure = Failure::failed(format!("answered with {other:?}"));
            Err(Failure { kind: ErrorKind::Internal.as_str(), ..failure })
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Result<Op, String> {
        step(line, KeyForm::Text).map(|(_, op)| op)
    }

    #[test]
    fn valid_lines_are_parsed() {
        let put = |key: &'static str, value: &'static str| Ok(Op::Put { key: key.into(), value: value.into() });
        assert_eq!(one("put city/1 athens"), put("city/1", "athens"));
        assert_eq!(one("put a  two  words "), put("a", " two  words "), "a value is the rest of the line, as it is");
        assert_eq!(one(r#"put "a key" "line\nbreak""#), put("a key", "line\nbreak"));
        assert_eq!(one(r#"put k """#), put("k", ""));
        assert_eq!(one("get k"), Ok(Op::Get { key: "k".into() }));
        assert_eq!(one("del k "), Ok(Op::Delete { key: "k".into() }));
        assert_eq!(one("incr n"), Ok(Op::Increment { key: "n".into(), by: 1 }));
        assert_eq!(one("incr n -5"), Ok(Op::Increment { key: "n".into(), by: -5 }));
        let expected = Revision::new(7);
        assert_eq!(one("cas k 7 v w"), Ok(Op::CompareAndSet { key: "k".into(), expected, value: "v w".into() }));
    }

    #[test]
    fn keys_of_lines_may_be_hexadecimal() {
        let steps = parse("put ff00 ff00\n", "f", KeyForm::Hex).unwrap();
        assert_eq!(steps[0].op, Op::Put { key: b"\xff\0"[..].into(), value: "ff00".into() });
        let failure = parse("get a\n", "f", KeyForm::Hex).unwrap_err();
        assert!(failure.message.starts_with("f, line 1: the key \"a\" is not hexadecimal"), "{}", failure.message);
    }

    #[test]
    fn invalid_line_is_explained() {
        for (line, part) in [
            ("put", "needs a key"),
            ("put k", "value is missing"),
            ("get a b", "in quotes"),
            ("get \"a", "JSON string"),
            ("put \"a\"b c", "space is missing"),
            ("put a \"b\" c", "too much after the value"),
            ("cas k v w", "is not a revision"),
            ("cas k 1", "value is missing"),
            ("incr n x", "is not a 64-bit integer"),
            ("fetch k", "is not an operation"),
            ("get \"\"", "key is empty"),
        ] {
            let problem = one(line).unwrap_err();
            assert!(problem.contains(part), "{line:?}: {problem}");
        }
    }

    #[test]
    fn comments_are_skipped_and_invalid_lines_are_numbered() {
        let steps = parse("# first\n\nput a 1\n  get a\n", "changes", KeyForm::Text).unwrap();
        assert_eq!(steps.iter().map(|step| step.line).collect::<Vec<_>>(), [3, 4]);
        let failure = parse("get a\nget\n", "changes", KeyForm::Text).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.message.starts_with("changes, line 2: "), "{}", failure.message);
    }

    #[test]
    fn atomic_batch_rejects_reads_and_repeated_keys() {
        let check =
            |text: &str| check_atomic(&parse(text, "f", KeyForm::Text).unwrap()).map_err(|failure| failure.message);
        assert_eq!(check("put a 1\ncas b 7 x\n\ndel c\n"), Ok(()));
        for (text, problem) in [
            ("put a 1\n\nget b\n", "line 3: `get` cannot be part of an atomic batch"),
            ("incr a\n", "line 1: `incr` cannot be part of an atomic batch"),
            ("put a 1\ndel b\ncas a 0 x\n", "line 3: an atomic batch writes \"a\" twice"),
        ] {
            assert_eq!(check(text), Err(problem.to_owned()));
        }
    }

    #[test]
    fn oversized_batch_is_rejected_locally() {
        let fits = "get k\n".repeat(BATCH_OPS_MAX);
        assert_eq!(parse(&fits, "f", KeyForm::Text).unwrap().len(), BATCH_OPS_MAX);
        let failure = parse(&format!("{fits}get k\n"), "f", KeyForm::Text).unwrap_err();
        assert!(failure.message.contains("line 4097 does not fit"), "{}", failure.message);
        let large = format!("put k {}\n", "v".repeat(1024 * 1024));
        assert_eq!(parse(&large.repeat(5), "f", KeyForm::Text).unwrap_err().exit, Exit::Usage);
        let huge = format!("put k {}\n", "v".repeat(1024 * 1024 + 1));
        assert!(parse(&huge, "f", KeyForm::Text).unwrap_err().message.contains("1048576"));
    }
}

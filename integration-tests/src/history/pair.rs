//! Pairs of keys in one slot that are only written together, with the same value. Then they are one register: a read of both
//! finds two equal values, and the history of either key is the history of the pair.

use super::operation::{Outcome, Request};
use super::store::{self, UnansweredRequest};
use crate::redis_driver::{Driver, Reply};

/// One in this many keys of a group is a pair.
const PAIR_EVERY: u64 = 3;

/// Returns whether the key of a group's generation is a pair. None of them is a counter.
pub(super) const fn is_pair(generation: u64) -> bool {
    generation % PAIR_EVERY == 1
}

/// Returns the other key of a pair, in the slot of the first one.
pub(super) fn other_key(key: &str) -> String {
    format!("{{{key}}}+")
}

/// Executes a request on both keys, by a command of several keys or by a transaction.
pub(super) async fn ask(
    driver: &Driver,
    transactions: bool,
    key: &str,
    request: &Request,
) -> Result<Outcome, UnansweredRequest> {
    let other = other_key(key);
    let [one, two] = [key.as_bytes(), other.as_bytes()];
    let replies = match request {
        Request::Get if transactions => driver.transaction(&[&[b"GET", one], &[b"GET", two]]).await,
        Request::Get => match driver.call(&[b"MGET", one, two]).await {
            Reply::List(values) => values,
            reply => vec![reply],
        },
        Request::Put(value) if transactions => {
            let value = value.as_bytes();
            driver.transaction(&[&[b"SET", one, value], &[b"SET", two, value]]).await
        }
        Request::Put(value) => vec![driver.call(&[b"MSET", one, value.as_bytes(), two, value.as_bytes()]).await],
        Request::Delete => vec![driver.call(&[b"DEL", one, two]).await],
        Request::Replace { expected: None, value } => {
            vec![driver.call(&[b"MSETNX", one, value.as_bytes(), two, value.as_bytes()]).await]
        }
        Request::Replace { expected: Some(old), value } => {
            vec![driver.swap(&[one, two], old.as_bytes(), value.as_bytes()).await]
        }
        Request::CompareAndSet { .. } | Request::Increment(_) => {
            vec![Reply::Refused("pairs have neither revisions nor counters".into())]
        }
    };
    outcome(request, &replies)
}

/// Returns the outcome that the replies stand for: one, or one for each key.
pub(super) fn outcome(request: &Request, replies: &[Reply]) -> Result<Outcome, UnansweredRequest> {
    // With a lost reply the outcome is unknown, whatever the others are.
    if let Some(lost) = replies.iter().find(|reply| matches!(reply, Reply::Lost(_))) {
        return store::outcome(request, lost.clone());
    }
    let is_refused = |reply: &Reply| matches!(reply, Reply::Refused(_));
    match (request, replies) {
        (_, [first, ..]) if replies.iter().all(is_refused) => store::outcome(request, first.clone()),
        (Request::Get, [one, two]) if one == two => store::outcome(request, one.clone()),
        (Request::Put(_), [_, ..]) if replies.iter().all(|reply| *reply == Reply::ok()) => Ok(Outcome::Written(None)),
        (Request::Delete, [Reply::Integer(count @ (0 | 2))]) => Ok(Outcome::Deleted { existed: *count == 2 }),
        (Request::Replace { expected: None, .. }, [Reply::Integer(0)]) => Ok(Outcome::ValueDiffers),
        // redis-py makes truth values of the replies to `MSETNX`.
        (Request::Replace { expected: None, .. }, [reply]) if [Reply::Integer(1), Reply::ok()].contains(reply) => {
            Ok(Outcome::Written(None))
        }
        (Request::Replace { expected: Some(_), .. }, [reply]) => store::outcome(request, reply.clone()),
        _ => Ok(Outcome::Divided(format!("{replies:?}").into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Record, Verdict, check};
    use archon_types::slot_of;

    fn bytes(value: &str) -> Reply {
        Reply::Bytes(value.as_bytes().to_vec())
    }

    /// Judges the history of one client that sends these requests one after the other, and gets these replies.
    fn verdict(steps: &[(Request, Vec<Reply>)]) -> Verdict {
        let record = |((request, replies), called_ns): (&(Request, Vec<Reply>), u64)| {
            let outcome = match outcome(request, replies) {
                Ok(outcome) => outcome,
                Err(UnansweredRequest { unknown: true, .. }) => Outcome::Unknown,
                Err(_) => return None,
            };
            Some(Record { client: 1, called_ns, returned_ns: called_ns + 5, request: request.clone(), outcome })
        };
        check(&steps.iter().zip((0..).step_by(10)).filter_map(record).collect::<Vec<_>>())
    }

    #[test]
    fn keys_of_a_pair_are_in_one_slot() {
        assert_eq!(slot_of(other_key("h/3/000004").as_bytes()), slot_of(b"h/3/000004"));
    }

    #[test]
    fn histories_of_pairs_are_judged_as_one_register() {
        let put = |value: &str| Request::Put(value.into());
        let replace =
            |old: Option<&str>, value: &str| Request::Replace { expected: old.map(Into::into), value: value.into() };
        let (lost, refused) = (Reply::Lost("closed".into()), Reply::Refused("TRYAGAIN".into()));
        let begin = (put("a"), vec![Reply::ok()]);
        let read = |one: Reply, two: Reply| (Request::Get, vec![one, two]);
        let cases = [
            (vec![read(bytes("a"), bytes("a"))], true),
            (vec![(put("b"), vec![Reply::ok(), Reply::ok()]), read(bytes("b"), bytes("b"))], true),
            (vec![(put("b"), vec![lost.clone(), lost.clone()]), read(bytes("b"), bytes("b"))], true),
            (vec![(put("b"), vec![refused.clone(), refused.clone()]), read(bytes("a"), bytes("a"))], true),
            (vec![(Request::Delete, vec![Reply::Integer(2)]), read(Reply::Nil, Reply::Nil)], true),
            (vec![(replace(None, "b"), vec![Reply::Integer(0)]), read(bytes("a"), bytes("a"))], true),
            (vec![(replace(Some("a"), "b"), vec![Reply::ok()]), read(bytes("b"), bytes("b"))], true),
            (vec![(Request::Delete, vec![Reply::Integer(2)]), (replace(None, "b"), vec![Reply::ok()])], true),
            // The keys differ: half of a write took effect, or was seen.
            (vec![read(bytes("a"), Reply::Nil)], false),
            (vec![(put("b"), vec![lost.clone()]), read(bytes("b"), bytes("a"))], false),
            (vec![(put("b"), vec![Reply::ok(), refused.clone()])], false),
            (vec![(Request::Delete, vec![Reply::Integer(1)])], false),
            // They are equal, and the value is an old one, or one that was refused.
            (vec![(put("b"), vec![Reply::ok()]), read(bytes("a"), bytes("a"))], false),
            (vec![(put("b"), vec![refused]), read(bytes("b"), bytes("b"))], false),
            (vec![(replace(None, "b"), vec![Reply::Integer(1)])], false),
        ];
        for (steps, fits) in cases {
            let steps: Vec<_> = std::iter::once(begin.clone()).chain(steps).collect();
            let expected = if fits { Verdict::Linearizable } else { Verdict::Violated };
            assert_eq!(verdict(&steps), expected, "{steps:?}");
        }
    }
}

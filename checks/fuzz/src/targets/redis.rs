//! Requests of Redis clients.

use crate::target::{Target, Verdict};
use archon_resp::{Limits, Parser, key_positions, lookup};
use archon_testkit::Random;
use bytes::{Bytes, BytesMut};

const LIMITS: Limits = Limits { arguments_max: 32, bulk_bytes_max: 512, request_bytes_max: 4_096 };

/// Parses all requests, whole and then byte by byte: both must give the same requests. Looks each of them up.
fn parse_all(input: &[u8]) -> Verdict {
    let at_once = requests([input].into_iter());
    assert_eq!(at_once, requests(input.chunks(1)), "how the bytes arrived makes a difference");
    let (requests, error) = at_once;
    for request in &requests {
        assert!((1..=LIMITS.arguments_max).contains(&request.len()), "{} arguments", request.len());
        match lookup(request) {
            Ok(command) => {
                let keys: Vec<usize> = key_positions(command, request.len()).collect();
                assert!(keys.iter().all(|at| (1..request.len()).contains(at)), "{}: {keys:?}", command.name);
            }
            Err(error) => assert!(!error.is_empty() && error.len() < 1_024, "{error:?}"),
        }
    }
    match error {
        Some(error) => Verdict::Refused(error),
        None => {
            let names = requests.iter().take(4).map(|request| lookup(request).map_or("other", |found| found.name));
            Verdict::Accepted(names.collect::<Vec<_>>().join(" "))
        }
    }
}

fn requests<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<Bytes>>, Option<String>) {
    let (mut parser, mut input, mut found) = (Parser::new(LIMITS), BytesMut::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match parser.next(&mut input) {
                Ok(Some(request)) => found.push(request),
                Ok(None) => break,
                Err(error) => return (found, Some(error.to_string())),
            }
            assert!(parser.pending_bytes() <= LIMITS.request_bytes_max, "more than a request may have");
        }
    }
    (found, None)
}

fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
        "SET k \"a \\x41\" 'it\\'s'\r\nMSET a 1 b 2\r\nCLUSTER SLOTS\r\n",
        "*0\r\n*-1\r\n\r\n*1\r\n$4\r\nPING\r\n",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

fn generate(_: &str, random: &mut Random) -> Vec<u8> {
    const PARTS: &[&str] = &[
        "*1\r\n",
        "*2\r\n",
        "$3\r\nGET\r\n",
        "$1\r\nk\r\n",
        "$0\r\n\r\n",
        "PING",
        " ",
        "\"",
        "'",
        "\\x",
        "\r\n",
        "*",
        "$",
        "-1",
        "99",
    ];
    (0..random.index(24)).flat_map(|_| PARTS[random.index(PARTS.len())].bytes()).collect()
}

pub(super) fn targets() -> Vec<Target> {
    vec![Target { generate: Some(generate), ..Target::new("wire/redis-requests", parse_all, seeds) }]
}

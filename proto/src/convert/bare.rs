//! A status that carries no detail of ours: what the transport, a proxy, or another kind of server means by it.

use archon_security::{TlsError, refused_in_words};
use archon_types::ErrorKind;
use archon_types::text::plain;
use std::error::Error;
use std::io;
use tonic::{Code, Status};

/// What says only that something else went wrong below it.
const WRAPPERS: [&str; 6] = [
    "transport error",
    "connection error",
    "http2 error",
    "h2 protocol error",
    "tcp connect error",
    "error trying to connect",
];
/// What the library says of bytes that are no HTTP/2, and of answers by HTTP that are no gRPC; it has no code of its own for these.
const NO_GRPC: [&str; 3] =
    ["frame with invalid size", "received message with invalid compression flag", "grpc-status header missing"];
/// What it says of a connection that ended before anything was said.
const ENDED: [&str; 2] = ["stream closed because of a broken pipe", "operation was canceled: connection closed"];
/// Most causes that are looked at.
const CAUSES_MAX: usize = 8;

/// Whether it is no answer of gRPC at all, as that of a console or of a web server: nothing else will come from there.
pub fn speaks_no_grpc(status: &Status) -> bool {
    texts(status).any(|text| NO_GRPC.iter().any(|said| text.contains(said)))
}

/// Whether asking there again brings nothing until somebody changes how one of the two is set up.
pub fn is_lasting(status: &Status) -> bool {
    let by_tls = |error: &(dyn Error + 'static)| {
        let tls = error.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref::<TlsError>()?;
        Some(!matches!(tls, TlsError::Broken(_) | TlsError::Silent(_)))
    };
    speaks_no_grpc(status) || causes(status).find_map(by_tls).unwrap_or(false)
}

/// What it and its causes say.
fn texts(status: &Status) -> impl Iterator<Item = String> {
    let own = if status.message().is_empty() { status.code().to_string() } else { status.message().to_owned() };
    std::iter::once(own).chain(causes(status).map(ToString::to_string))
}

fn causes(status: &Status) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(status.source(), |error: &&(dyn Error + 'static)| (*error).source()).take(CAUSES_MAX)
}

/// The nearest kind.
pub(super) fn kind(status: &Status) -> ErrorKind {
    if speaks_no_grpc(status) {
        return ErrorKind::ProtocolMismatch;
    }
    // The transport puts its own failures into several codes; what they share is that they have a cause. This one a member has given a
    // reason for that only a change of the configuration takes away.
    if status.source().is_some()
        && !matches!(status.code(), Code::DeadlineExceeded | Code::OutOfRange | Code::PermissionDenied)
    {
        return match status.message() {
            "Timeout expired" => ErrorKind::DeadlineExceeded,
            _ => ErrorKind::Unreachable,
        };
    }
    match status.code() {
        Code::InvalidArgument | Code::OutOfRange => ErrorKind::InvalidArgument,
        Code::DeadlineExceeded => ErrorKind::DeadlineExceeded,
        Code::Cancelled if status.message() == "Timeout expired" => ErrorKind::DeadlineExceeded,
        Code::NotFound => ErrorKind::NotFound,
        Code::AlreadyExists => ErrorKind::AlreadyExists,
        Code::ResourceExhausted => ErrorKind::Overloaded,
        Code::FailedPrecondition | Code::PermissionDenied | Code::Unauthenticated => ErrorKind::Refused,
        Code::Aborted => ErrorKind::MaybeApplied,
        Code::Unimplemented => ErrorKind::ProtocolMismatch,
        Code::Unavailable | Code::Cancelled => ErrorKind::Unreachable,
        Code::Ok | Code::Unknown | Code::Internal | Code::DataLoss => ErrorKind::Internal,
    }
}

/// What it says to people: the reason that a member gave, or the causes, without what only wraps them.
pub(super) fn message(status: &Status) -> String {
    if speaks_no_grpc(status) {
        return "what answers there is no gRPC port of Archon; it may be the port of a console (--http-listen) or of another service, \
                where that of --listen is meant"
            .to_owned();
    }
    let mut parts: Vec<String> = Vec::new();
    for text in texts(status) {
        if let Some(reason) = farewell(&text) {
            return plain(&reason).into_owned();
        }
        if let Some(refused) = refused_in_words(&text) {
            return refused.to_string();
        }
        let text = without_wrappers(&text);
        if !text.is_empty() && !parts.iter().any(|part| part.contains(text)) {
            parts.push(text.to_owned());
        }
    }
    let mut message = if parts.is_empty() { texts(status).next().unwrap_or_default() } else { parts.join(": ") };
    if ENDED.iter().any(|said| message.contains(said)) {
        message = format!(
            "the connection was closed before an answer came ({message}); a port of metrics (--metrics-listen) does that, too, and by \
             TLS whoever does not take this process's certificate"
        );
    }
    plain(&message).into_owned()
}

fn without_wrappers(mut text: &str) -> &str {
    while let Some(rest) = WRAPPERS.iter().find_map(|wrapper| text.strip_prefix(wrapper)) {
        match rest.strip_prefix(": ") {
            Some(rest) => text = rest,
            None if rest.is_empty() => return "",
            None => break,
        }
    }
    text
}

/// The reason that a server of HTTP/2 gave when it ended the connection, as the library quotes it.
fn farewell(text: &str) -> Option<String> {
    let quoted = text.split_once(" (b\"")?.1.strip_suffix("\")")?;
    let reason = quoted.replace("\\\"", "\"").replace("\\\\", "\\");
    (!reason.is_empty() && text.contains("connection error received")).then_some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_wraps_a_cause_was_told_to_people() {
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "Connection refused (os error 111)");
        let mut status = Status::unavailable("transport error");
        status.set_source(std::sync::Arc::new(refused));
        assert_eq!(message(&status), "Connection refused (os error 111)");
        assert_eq!(message(&Status::unavailable("transport error")), "transport error", "there is nothing else to say");
        assert_eq!(
            without_wrappers("connection error received: not a result"),
            "connection error received: not a result"
        );
    }

    #[test]
    fn the_reason_that_a_member_gave_was_told_as_the_library_quotes_it() {
        let said =
            "connection error received: security properties do not meet minimum requirements (b\"say \\\"this\\\"\")";
        assert_eq!(farewell(said).as_deref(), Some("say \"this\""));
        assert_eq!(farewell("connection error received: not a result of an error"), None);
        assert_eq!(farewell("a value (b\"x\")"), None);
    }
}

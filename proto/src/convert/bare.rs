//! Interpretation of a status without Archon's error detail: from the transport, a proxy, or another kind of server.

use archon_security::{TlsError, refused_in_words};
use archon_types::ErrorKind;
use archon_types::plain;
use std::error::Error;
use std::io;
use tonic::{Code, Status};

/// Messages that only wrap another cause.
const WRAPPERS: [&str; 6] = [
    "transport error",
    "connection error",
    "http2 error",
    "h2 protocol error",
    "tcp connect error",
    "error trying to connect",
];
/// The library's messages for bytes that are not HTTP/2, and for HTTP answers that are not gRPC; it has no code for
/// these.
const NO_GRPC: [&str; 3] =
    ["frame with invalid size", "received message with invalid compression flag", "grpc-status header missing"];
/// The library's messages for a connection that ended before any data.
const ENDED: [&str; 2] = ["stream closed because of a broken pipe", "operation was canceled: connection closed"];
/// Maximum number of causes examined.
const CAUSES_MAX: usize = 8;

/// Returns true if the answer is not gRPC, for example from a console or a web server: that address will not give any
/// other.
pub fn speaks_no_grpc(status: &Status) -> bool {
    texts(status).any(|text| NO_GRPC.iter().any(|said| text.contains(said)))
}

/// Returns true if a retry there is useless until the configuration of one of the two changes.
pub fn is_lasting(status: &Status) -> bool {
    let by_tls = |error: &(dyn Error + 'static)| {
        let tls = error.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref::<TlsError>()?;
        Some(!matches!(tls, TlsError::Broken(_) | TlsError::Silent(_)))
    };
    speaks_no_grpc(status) || causes(status).find_map(by_tls).unwrap_or(false)
}

/// Returns the messages of the status and its causes.
fn texts(status: &Status) -> impl Iterator<Item = String> {
    let own = if status.message().is_empty() { status.code().to_string() } else { status.message().to_owned() };
    std::iter::once(own).chain(causes(status).map(ToString::to_string))
}

fn causes(status: &Status) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(status.source(), |error: &&(dyn Error + 'static)| (*error).source()).take(CAUSES_MAX)
}

/// Returns the nearest kind.
pub(super) fn kind(status: &Status) -> ErrorKind {
    if speaks_no_grpc(status) {
        return ErrorKind::ProtocolMismatch;
    }
    // The transport reports its own failures under several codes; all of them have a cause. A member has given a reason
    // for this one, which only a change of the configuration removes.
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

/// Returns the message for people: the reason that a member gave, or the causes without their wrappers.
pub(super) fn message(status: &Status) -> String {
    if speaks_no_grpc(status) {
        return "the server there is not a gRPC port of Archon: use the address of --listen, not that of a console \
                (--http-listen) or of another service"
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
            "the connection was closed before an answer arrived ({message}); possible causes: it is a metrics port \
             (--metrics-listen), or the server refuses this process's certificate"
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

/// Returns the reason that an HTTP/2 server gave when it ended the connection, as quoted by the library.
fn farewell(text: &str) -> Option<String> {
    let quoted = text.split_once(" (b\"")?.1.strip_suffix("\")")?;
    let reason = quoted.replace("\\\"", "\"").replace("\\\\", "\\");
    (!reason.is_empty() && text.contains("connection error received")).then_some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_are_left_out_of_messages() {
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
    fn reason_of_a_member_is_unquoted() {
        let said =
            "connection error received: security properties do not meet minimum requirements (b\"say \\\"this\\\"\")";
        assert_eq!(farewell(said).as_deref(), Some("say \"this\""));
        assert_eq!(farewell("connection error received: not a result of an error"), None);
        assert_eq!(farewell("a value (b\"x\")"), None);
    }
}

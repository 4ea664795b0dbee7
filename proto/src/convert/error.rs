//! Errors: [`ErrorDetail`] ⇄ wire and ⇄ gRPC status, one mapping, inverted once.

use super::bare;
pub use super::bare::{is_lasting, speaks_no_grpc};
use crate::v1;
use archon_types::{ErrorDetail, ErrorKind, Version};
use archon_types::{into_plain, plain};
use prost::Message;
use tonic::metadata::{BinaryMetadataValue, MetadataMap, MetadataValue};
use tonic::{Code, Status};

/// The binary metadata that carries the wire's `ErrorDetail` beside a gRPC status.
pub const METADATA_KEY: &str = "archon-error-bin";

/// Longest message of an error on the wire, in bytes; HTTP/2 header lists are bounded, and it travels in two headers.
pub const ERROR_MESSAGE_BYTES_MAX: usize = 1_024;

impl From<ErrorDetail> for v1::ErrorDetail {
    fn from(detail: ErrorDetail) -> Self {
        Self {
            kind: detail.kind.code(),
            message: shortened(detail.message),
            retry_after_ms: detail.retry_after_ms,
            leader: detail.leader,
            table_version: detail.table_version.map(Version::get),
            have: detail.have,
            need: detail.need,
            ..Self::default()
        }
    }
}

impl From<v1::ErrorDetail> for ErrorDetail {
    /// Converts an unknown kind to [`ErrorKind::Internal`] with its number in the message: still an error, never a
    /// success and never retried blindly.
    fn from(wire: v1::ErrorDetail) -> Self {
        match ErrorKind::from_code(wire.kind) {
            Some(kind) => with_hints(kind, into_plain(wire.message.clone()), wire),
            None => {
                let message = format!("{} (error kind {}, unknown to this version)", plain(&wire.message), wire.kind);
                with_hints(ErrorKind::Internal, message, wire)
            }
        }
    }
}

fn with_hints(kind: ErrorKind, message: String, wire: v1::ErrorDetail) -> ErrorDetail {
    ErrorDetail {
        kind,
        message,
        retry_after_ms: wire.retry_after_ms,
        leader: wire.leader,
        table_version: wire.table_version.map(Version::new),
        have: wire.have,
        need: wire.need,
    }
}

/// Cuts a message to [`ERROR_MESSAGE_BYTES_MAX`] bytes, at a character boundary, marking the cut.
fn shortened(mut message: String) -> String {
    const MARK: &str = " […]";
    if message.len() > ERROR_MESSAGE_BYTES_MAX {
        message.truncate(message.floor_char_boundary(ERROR_MESSAGE_BYTES_MAX - MARK.len()));
        message.push_str(MARK);
    }
    message
}

/// Returns the gRPC code of a kind, for clients without knowledge of Archon. UNAVAILABLE: try another member or later;
/// FAILED_PRECONDITION: an epoch, guard or identity is wrong; RESOURCE_EXHAUSTED: overload; ABORTED: outcome unknown.
pub const fn code_of(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::InvalidArgument => Code::InvalidArgument,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::AlreadyExists => Code::AlreadyExists,
        ErrorKind::NotCoordinatorLeader
        | ErrorKind::NoQuorum
        | ErrorKind::NotEnoughNodes
        | ErrorKind::NotPartitionLeader
        | ErrorKind::Unavailable
        | ErrorKind::NoLease
        | ErrorKind::NotEnoughReplicas
        | ErrorKind::ShuttingDown
        | ErrorKind::Moved
        | ErrorKind::Unreachable => Code::Unavailable,
        ErrorKind::WrongCluster
        | ErrorKind::WrongNode
        | ErrorKind::OtherHistory
        | ErrorKind::StaleIncarnation
        | ErrorKind::NameTaken
        | ErrorKind::ProtocolMismatch
        | ErrorKind::AssignmentInProgress
        | ErrorKind::StalePlan
        | ErrorKind::StaleVersion
        | ErrorKind::NothingRunning
        | ErrorKind::StaleEpoch
        | ErrorKind::ConditionFailed
        | ErrorKind::WrongValueType
        | ErrorKind::Refused
        | ErrorKind::DataLoss => Code::FailedPrecondition,
        ErrorKind::Overloaded | ErrorKind::ReadOnly => Code::ResourceExhausted,
        ErrorKind::DeadlineExceeded => Code::DeadlineExceeded,
        ErrorKind::MaybeApplied => Code::Aborted,
        // The list of kinds may grow; the round-trip test finds a kind missing above.
        _ => Code::Internal,
    }
}

/// Returns the gRPC status of an error; [`detail_of`] returns the error.
pub fn status_of(detail: &ErrorDetail) -> Status {
    status_of_wire(detail.kind, &detail.clone().into())
}

/// Returns the gRPC status of an error of this kind in wire format.
pub fn status_of_wire(kind: ErrorKind, wire: &v1::ErrorDetail) -> Status {
    let message = format!("{kind}: {}", wire.message);
    let mut metadata = MetadataMap::new();
    let value: BinaryMetadataValue = MetadataValue::from_bytes(&wire.encode_to_vec());
    metadata.insert_bin(METADATA_KEY, value);
    Status::with_metadata(code_of(kind), message, metadata)
}

/// Returns the error behind a gRPC status: the detail it carries, or the nearest kind by code, for the transport and
/// for servers or proxies without knowledge of Archon.
///
/// Only a status with a detail proves that a request had no effect; after one with only a code the outcome is unknown
/// ([`is_answer`] distinguishes the two).
pub fn detail_of(status: &Status) -> ErrorDetail {
    carried(status).unwrap_or_else(|| ErrorDetail::new(bare::kind(status), bare::message(status)))
}

/// Returns true if the status is an Archon server's own answer, and not the transport's or a proxy's.
pub fn is_answer(status: &Status) -> bool {
    carried(status).is_some()
}

fn carried(status: &Status) -> Option<ErrorDetail> {
    let bytes = status.metadata().get_bin(METADATA_KEY)?.to_bytes().ok()?;
    v1::ErrorDetail::decode(bytes).ok().map(ErrorDetail::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::testing::error_detail;
    use proptest::prelude::*;

    fn full(kind: ErrorKind) -> ErrorDetail {
        ErrorDetail::new(kind, "what was wrong: ünïcode, \"quotes\", and 100 %")
            .with_leader(Some("127.0.0.1:4000".into()))
            .with_have_need(1, 3)
            .with_retry_after_ms(20)
            .with_table_version(Version::new(9))
    }

    #[test]
    fn every_kind_round_trips_through_a_status_and_its_headers() {
        for kind in ErrorKind::ALL {
            for detail in [full(*kind), ErrorDetail::new(*kind, "")] {
                let status = status_of(&detail);
                assert_eq!(detail_of(&status), detail);
                let headers = status.into_http::<()>().into_parts().0.headers;
                let received = Status::from_header_map(&headers).unwrap();
                assert_eq!(received.code(), code_of(*kind));
                assert_eq!(detail_of(&received), detail);
                assert!(is_answer(&received));
            }
        }
    }

    #[test]
    fn retryable_kinds_have_retryable_grpc_codes() {
        for kind in ErrorKind::ALL {
            let code = code_of(*kind);
            assert_eq!(code == Code::Internal, *kind == ErrorKind::Internal, "{kind}");
            let strangers_retry = matches!(code, Code::Unavailable | Code::ResourceExhausted);
            assert_eq!(strangers_retry, kind.is_retryable() && *kind != ErrorKind::StaleEpoch, "{kind}");
        }
    }

    #[test]
    fn status_without_detail_maps_by_code() {
        let cases = [
            (Status::unavailable("x"), ErrorKind::Unreachable),
            (Status::deadline_exceeded("x"), ErrorKind::DeadlineExceeded),
            (Status::cancelled("Timeout expired"), ErrorKind::DeadlineExceeded),
            (Status::cancelled("x"), ErrorKind::Unreachable),
            (Status::unimplemented("x"), ErrorKind::ProtocolMismatch),
            (Status::resource_exhausted("x"), ErrorKind::Overloaded),
            (Status::aborted("x"), ErrorKind::MaybeApplied),
            (Status::out_of_range("x"), ErrorKind::InvalidArgument),
            (Status::unknown("x"), ErrorKind::Internal),
            (Status::from_error(Box::new(std::io::Error::other("reset"))), ErrorKind::Unreachable),
        ];
        for (status, kind) in cases {
            assert_eq!(detail_of(&status).kind, kind, "{status:?}");
            assert!(!is_answer(&status));
        }
    }

    #[test]
    fn damaged_metadata_falls_back_to_the_code() {
        let mut status = Status::not_found("no such table");
        status.metadata_mut().insert_bin(METADATA_KEY, MetadataValue::from_bytes(b"\xff\xff\xff"));
        assert_eq!(detail_of(&status), ErrorDetail::new(ErrorKind::NotFound, "no such table"));
    }

    #[test]
    fn received_message_cannot_forge_log_lines() {
        let detail = detail_of(&status_of(&ErrorDetail::new(ErrorKind::Internal, "bad\nINFO all is well\u{1b}[2J")));
        assert_eq!(detail.message, "bad\\nINFO all is well\\u{1b}[2J");
    }

    #[test]
    fn unknown_kind_stays_an_error_with_its_hints() {
        let wire =
            v1::ErrorDetail { kind: 9_999, message: "new".into(), leader: Some("a:1".into()), ..Default::default() };
        let detail = ErrorDetail::from(wire);
        assert_eq!((detail.kind, detail.leader.as_deref()), (ErrorKind::Internal, Some("a:1")));
        assert!(detail.message.contains("9999"));
    }

    #[test]
    fn long_messages_are_cut_at_a_character_boundary() {
        let wire = v1::ErrorDetail::from(ErrorDetail::new(ErrorKind::Internal, "ü".repeat(5_000)));
        assert!(wire.message.len() <= ERROR_MESSAGE_BYTES_MAX && wire.message.ends_with(" […]"));
    }

    proptest! {
        #[test]
        fn any_detail_round_trips(detail in error_detail()) {
            prop_assert_eq!(ErrorDetail::from(v1::ErrorDetail::from(detail.clone())), detail.clone());
            prop_assert_eq!(detail_of(&status_of(&detail)), detail);
        }
    }
}

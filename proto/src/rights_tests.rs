//! Completeness of the table of rights.

use archon_security::rights::{callers, known_calls};
use prost::Message;
use prost_types::FileDescriptorSet;
use std::collections::BTreeSet;

/// A call without a line in the table would be refused to every caller with TLS; the test reports that before a user
/// does.
#[test]
fn every_call_has_a_line_in_the_table_of_rights() {
    let sets = [crate::DESCRIPTORS, tonic_health::pb::FILE_DESCRIPTOR_SET];
    let mut served = BTreeSet::from(["/grpc.reflection.v1.ServerReflection/ServerReflectionInfo".to_owned()]);
    for set in sets {
        let set = FileDescriptorSet::decode(set).expect("what the build generates");
        for file in &set.file {
            for service in &file.service {
                let path = |method: &str| format!("/{}.{}/{method}", file.package(), service.name());
                served.extend(service.method.iter().map(|method| path(method.name())));
            }
        }
    }
    assert_eq!(known_calls().collect::<BTreeSet<_>>(), served);
    for call in &served {
        assert!(!callers(call).is_empty(), "nobody may call {call}");
    }
}

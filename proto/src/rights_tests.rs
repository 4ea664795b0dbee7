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

/// Reflection and clients in other languages find a document's call in the descriptors; the product finds it in the method table.
#[test]
fn descriptors_list_the_methods_that_carry_documents() {
    let set = FileDescriptorSet::decode(crate::DESCRIPTORS).expect("what the build generates");
    let services = set.file.iter().flat_map(|file| &file.service).filter(|service| service.name() == "Admin");
    let methods = services.flat_map(|service| &service.method);
    let carrying = methods.filter(|method| method.input_type() == ".archon.v1.AdminRequest");
    let described: BTreeSet<&str> = carrying.map(|method| method.name()).collect();
    assert_eq!(archon_documents::METHODS.iter().map(|method| method.name).collect::<BTreeSet<_>>(), described);
}

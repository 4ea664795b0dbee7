//! Comparison of the generated code with the `.proto` files, compiled by protox: a machine with nothing but Rust generates it.

use std::path::Path;

/// Set to regenerate the files instead of comparing them.
const UPDATE: &str = "ARCHON_UPDATE_DOCS";
const FILES: [&str; 9] = ["common", "table", "session", "admin", "control", "kv", "replication", "raft", "stats"];

#[test]
fn generated_code_is_that_of_the_proto_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = FILES.map(|name| format!("archon/v1/{name}.proto"));
    let descriptors = protox::compile(files, [root.join("proto")]).unwrap();
    // Reflection serves the descriptors, so that grpcurl works against any Archon server.
    compare("descriptors.bin", prost::Message::encode_to_vec(&descriptors));
    let out = tempfile::tempdir().unwrap();
    // Keys, values and entries are shared buffers, not copies.
    let generator = tonic_prost_build::configure().bytes(".").out_dir(out.path());
    generator.compile_fds(without_documents(descriptors)).unwrap();
    compare("archon.v1.rs", std::fs::read(out.path().join("archon.v1.rs")).unwrap());
}

/// Removes the calls that carry documents: one generic call serves them all, so that none needs generated code.
fn without_documents(mut descriptors: prost_types::FileDescriptorSet) -> prost_types::FileDescriptorSet {
    for service in descriptors.file.iter_mut().flat_map(|file| &mut file.service) {
        service.method.retain(|method| method.input_type() != ".archon.v1.AdminRequest");
    }
    descriptors
}

/// Compares a generated file with its expected content, or writes it.
fn compare(name: &str, wanted: Vec<u8>) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/generated").join(name);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&file, &wanted).unwrap();
    }
    let found = std::fs::read(&file).unwrap_or_default();
    assert!(
        found == wanted,
        "{name} does not match the .proto files; regenerate it: {UPDATE}=1 cargo test -p archonkv-proto generated"
    );
}

//! Compiles `proto/archon/v1/*.proto` with protox, so that a machine with nothing but Rust builds it.

use std::{env, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files: Vec<PathBuf> = ["common", "table", "session", "admin", "control", "kv", "replication", "raft", "stats"]
        .map(|name| format!("archon/v1/{name}.proto").into())
        .into();
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(&files, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Reflection serves the descriptors, so that grpcurl works against any Archon server.
    fs::write(out.join("descriptors.bin"), prost::Message::encode_to_vec(&descriptors))?;
    let generated = without_documents(descriptors);
    // Keys, values and entries are shared buffers, not copies.
    tonic_prost_build::configure().bytes(".").compile_fds(generated)?;
    Ok(())
}

/// Removes the calls that carry documents: one generic call serves them all, so that none needs generated code.
fn without_documents(mut descriptors: prost_types::FileDescriptorSet) -> prost_types::FileDescriptorSet {
    for service in descriptors.file.iter_mut().flat_map(|file| &mut file.service) {
        service.method.retain(|method| method.input_type() != ".archon.v1.AdminRequest");
    }
    descriptors
}

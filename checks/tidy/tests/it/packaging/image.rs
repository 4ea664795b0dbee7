//! The container image.

use super::{version, workspace};
use archon_tidy::packaging::compose::{PROGRAM, members};
use archon_tidy::packaging::{Member, port};
use archon_tidy::{root, source};
use std::collections::BTreeSet;

#[test]
fn image_is_built_with_our_toolchain_and_every_room() {
    let dockerfile = source("packaging/docker/Dockerfile");
    let workspace = workspace();
    let toolchain = workspace["workspace"]["package"]["rust-version"].as_str().expect("a version");
    assert!(dockerfile.contains(&format!("\nARG BUILD_IMAGE=rust:{toolchain}-slim-")), "not by Rust {toolchain}");
    let from: Vec<&str> = dockerfile.lines().filter_map(|line| line.strip_prefix("FROM ")).collect();
    assert_eq!(from, ["${BUILD_IMAGE} AS build", "${RUN_IMAGE}"], "a release can name them by digest");
    assert!(dockerfile.contains(&format!("-t archon:{} ", version())));
    assert!(
        dockerfile.contains(&format!("ENTRYPOINT [\"{PROGRAM}\"]"))
            && dockerfile.contains(&format!("/out/archon {PROGRAM}\n"))
    );
    assert!(dockerfile.contains("\nUSER 65532:65532\n") && dockerfile.contains("\nSTOPSIGNAL SIGTERM\n"));
    assert!(workspace["profile"].get("dist").is_some() && dockerfile.contains("--profile dist -p archonkv-cli"));
    let exposed = dockerfile.lines().find_map(|line| line.strip_prefix("EXPOSE ")).expect("ports");
    let exposed: BTreeSet<u16> = exposed.split(' ').map(|port| port.parse().expect("a port")).collect();
    let told = |member: &Member, setting: &str| member.value(setting).map(port);
    let used = members()
        .into_iter()
        .flat_map(|(member, _)| ["listen", "metrics-listen", "http-listen"].map(|setting| told(&member, setting)));
    assert_eq!(used.flatten().collect::<BTreeSet<u16>>(), exposed);

    let sent = source("packaging/docker/Dockerfile.dockerignore");
    let sent: BTreeSet<&str> = sent.lines().filter_map(|line| line.strip_prefix('!')).collect();
    let rooms = workspace["workspace"]["members"].as_array().expect("members").iter().filter_map(toml::Value::as_str);
    let needed = rooms.filter_map(|room| room.split('/').next()).chain(["Cargo.toml", "Cargo.lock", "LICENSE"]);
    assert_eq!(sent, needed.collect::<BTreeSet<_>>(), "what the build gets is what it needs");
    assert!(sent.iter().all(|name| root().join(name).exists()));
}

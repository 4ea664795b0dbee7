//! Files of `packaging/`, compared with each other and with the workspace. `integration-tests/tests/packaging/` compares them with the
//! program.

mod compose;
mod crates;
mod debian;
mod image;
mod kubernetes;
mod units;

use archon_tidy::{names, source};

fn workspace() -> toml::Table {
    source("Cargo.toml").parse().expect("TOML")
}

/// Returns the version of the workspace, as images are named.
fn version() -> String {
    workspace()["workspace"]["package"]["version"].as_str().expect("a version").to_owned()
}

/// A new file needs a test that reads it.
#[test]
fn every_packaging_file_is_read_by_a_test() {
    assert_eq!(names("packaging"), ["README.md", "build", "crate.md", "debian", "docker", "kubernetes", "systemd"]);
    let units = ["archon-coordinator.service", "archon-node@.service", "archon-participant@.service"];
    assert_eq!(names("packaging/systemd"), [&units[..], &["archon.sysusers"]].concat());
    assert_eq!(names("packaging/debian"), ["postinst", "postrm", "prerm"]);
    assert_eq!(names("packaging/docker"), ["Dockerfile", "Dockerfile.dockerignore", "compose.yaml"]);
    assert_eq!(names("packaging/kubernetes"), ["base", "tls"]);
    let base = ["coordinator.yaml", "kustomization.yaml", "network-policy.yaml", "node.yaml"];
    assert_eq!(names("packaging/kubernetes/base"), base);
    assert_eq!(names("packaging/kubernetes/tls"), ["coordinator.yaml", "kustomization.yaml", "node.yaml"]);
}

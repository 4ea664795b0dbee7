//! The Debian package: `[package.metadata.deb]` of the command line's manifest.

use archon_tidy::{names, root, source};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn metadata() -> toml::Table {
    let manifest: toml::Table = source("cli/Cargo.toml").parse().expect("TOML");
    manifest["package"]["metadata"]["deb"].as_table().expect("[package.metadata.deb]").clone()
}

fn texts(value: &toml::Value) -> Vec<&str> {
    value.as_array().expect("a list").iter().map(|text| text.as_str().expect("a text")).collect()
}

/// Returns each file with its installation path.
fn assets(metadata: &toml::Table) -> Vec<(String, String)> {
    let assets = metadata["assets"].as_array().expect("assets").iter().map(texts);
    let installed = |asset: Vec<&str>| {
        let [from, to, _mode] = asset[..] else { panic!("{asset:?}") };
        let name = Path::new(from).file_name().and_then(|name| name.to_str()).expect("a name");
        (from.to_owned(), if to.ends_with('/') { format!("/{to}{name}") } else { format!("/{to}") })
    };
    assets.map(installed).collect()
}

#[test]
fn package_contains_every_unit_and_every_named_file() {
    let metadata = metadata();
    let assets = assets(&metadata);
    for (from, _) in assets.iter().filter(|(from, _)| !from.starts_with("target/")) {
        assert!(root().join("cli").join(from).is_file(), "{from}");
    }
    let has = |path: &str| assets.iter().any(|(_, to)| to == path);
    assert!(has("/usr/bin/archon") && has("/usr/lib/sysusers.d/archon.conf"));
    for unit in names("packaging/systemd").iter().filter(|name| name.ends_with(".service")) {
        assert!(has(&format!("/usr/lib/systemd/system/{unit}")), "{unit}");
    }
    // Operators' changes survive an upgrade.
    let kept = texts(&metadata["conf-files"]);
    let configuration: Vec<_> = assets.iter().map(|(_, to)| to.as_str()).filter(|to| to.starts_with("/etc/")).collect();
    assert_eq!(kept, configuration);
    assert_eq!(kept, ["/etc/archon/coordinator.toml", "/etc/archon/node.toml"]);
    assert!(root().join("cli").join(texts(&metadata["license-file"])[0]).is_file());
}

#[test]
fn package_scripts_run_by_sh_and_stop_at_first_error() {
    let metadata = metadata();
    let folder = metadata["maintainer-scripts"].as_str().expect("a folder");
    assert_eq!(Path::new(folder), Path::new("../packaging/debian/"));
    for script in names("packaging/debian") {
        let path = format!("packaging/debian/{script}");
        assert!(source(&path).starts_with("#!/bin/sh\nset -e\n"), "{path}");
        let mode = root().join(&path).metadata().expect("a file").permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{path} cannot be run");
        // Only operators delete data and keys.
        assert!(!source(&path).contains("rm "), "{path} deletes something");
    }
}

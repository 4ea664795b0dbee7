//! Dependency rules: which room may depend on which, and which files alone may name a library. A rule that only people
//! know is broken within a month.

use archon_tidy::{dependency_key, files_below, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Allowed dependencies on other rooms. All others are forbidden.
const MAY_DEPEND_ON: &[(&str, &str, &[&str])] = &[
    ("proto/types", "archon-types", &[]),
    ("proto/documents", "archon-documents", &["archon-types"]),
    ("base/security", "archon-security", &["archon-documents", "archon-types"]),
    ("proto", "archon-proto", &["archon-documents", "archon-security", "archon-types"]),
    ("proto/frames", "archon-frames", &["archon-proto", "archon-security", "archon-types"]),
    ("base/durable", "archon-durable", &[]),
    ("base/wal", "archon-wal", &["archon-durable"]),
    ("base/security/certificates", "archon-certificates", &["archon-durable", "archon-security", "archon-types"]),
    ("integration-tests/testkit", "archon-testkit", &[]),
    // Builds in seconds, since it needs no part of the product.
    ("checks/tidy", "archon-tidy", &[]),
    ("base/telemetry", "archon-telemetry", &["archon-security", "archon-types"]),
    ("coordinator/core", "archon-coordinator-core", &["archon-types"]),
    (
        "coordinator",
        "archon-coordinator",
        &[
            "archon-coordinator-core",
            "archon-documents",
            "archon-durable",
            "archon-frames",
            "archon-proto",
            "archon-security",
            "archon-telemetry",
            "archon-types",
            "archon-wal",
        ],
    ),
    ("member", "archon-member", &["archon-types"]),
    (
        "member/session",
        "archon-session",
        &["archon-frames", "archon-member", "archon-proto", "archon-security", "archon-types"],
    ),
    ("kvstore-node/kv", "archon-kv", &["archon-types"]),
    ("kvstore-node/replica", "archon-replica", &["archon-types"]),
    ("kvstore-node/resp", "archon-resp", &[]),
    ("kvstore-node/host", "archon-host", &["archon-kv", "archon-replica", "archon-types"]),
    (
        "kvstore-node",
        "archon-kvstore-node",
        &[
            "archon-durable",
            "archon-frames",
            "archon-host",
            "archon-kv",
            "archon-member",
            "archon-proto",
            "archon-replica",
            "archon-resp",
            "archon-security",
            "archon-session",
            "archon-telemetry",
            "archon-types",
            "archon-wal",
        ],
    ),
    (
        "client",
        "archon-client",
        &[
            "archon-documents",
            "archon-frames",
            "archon-member",
            "archon-proto",
            "archon-security",
            "archon-session",
            "archon-types",
        ],
    ),
    ("member/agent", "archon-agent", &["archon-client", "archon-security", "archon-telemetry"]),
    ("backup", "archon-backup", &["archon-client", "archon-durable", "archon-types"]),
    ("coordinator/console", "archon-console", &["archon-client", "archon-security", "archon-types"]),
    (
        "checks/simulator",
        "archon-simulator",
        &["archon-coordinator-core", "archon-host", "archon-kv", "archon-member", "archon-replica", "archon-types"],
    ),
    (
        "tools/load",
        "archon-load",
        &["archon-client", "archon-frames", "archon-proto", "archon-security", "archon-types"],
    ),
    (
        "tools/local-cluster",
        "archon-local-cluster",
        &["archon-certificates", "archon-client", "archon-load", "archon-types"],
    ),
    ("examples", "archon-examples", &["archon-cli", "archon-client", "archon-local-cluster"]),
    ("examples/zombies", "archon-zombies", &["archon-coordinator-core", "archon-member", "archon-types"]),
    ("tools/bench/regress", "archon-regress", &["archon-kv", "archon-proto", "archon-replica", "archon-types"]),
    (
        "cli",
        "archon-cli",
        &[
            "archon-agent",
            "archon-backup",
            "archon-certificates",
            "archon-client",
            "archon-console",
            "archon-coordinator",
            "archon-kvstore-node",
            "archon-load",
            "archon-local-cluster",
            "archon-security",
            "archon-types",
        ],
    ),
];

/// Dependencies that no source names, with the reason.
const NOT_NAMED: &[(&str, &str, &str)] = &[
    ("backup", "reqwest", "has object_store speak TLS without aws-lc"),
    ("coordinator", "openraft-macros", "pins the sibling of openraft"),
    ("coordinator", "openraft-rt", "pins the sibling of openraft"),
    ("coordinator", "openraft-rt-tokio", "pins the sibling of openraft"),
    ("integration-tests", "archon-coordinator-core", "enables what other tests enable"),
    ("integration-tests", "archon-host", "enables what other tests enable"),
    ("integration-tests", "archon-kv", "enables what other tests enable"),
    ("integration-tests", "archon-member", "enables what other tests enable"),
    ("integration-tests", "archon-replica", "enables what other tests enable"),
    ("integration-tests", "archon-wal", "enables what other tests enable"),
    ("integration-tests", "regex-syntax", "enables what proptest enables"),
    ("integration-tests", "syn", "enables what redis enables"),
];

/// Maximum number of packages in `Cargo.lock` that exist only because a library has more than one version. It falls, or
/// a library that we chose has a reason to bring another one: of object_store these compute checksums and hashes.
const MORE_VERSIONS_MAX: usize = 24;

/// Libraries that only some rooms or files may name.
const ONLY_NAMED_IN: &[(&str, &[&str])] = &[
    ("openraft", &["coordinator/src/raft/", "coordinator/tests/"]),
    ("sled", &["kvstore-node/src/engine/"]),
    // Only a program chooses an allocator.
    ("mimalloc", &["cli/src/main.rs", "tools/bench/src/bin/"]),
    ("lsm_tree", &["kvstore-node/src/engine/"]),
    ("prometheus_client", &["base/telemetry/src/exposition.rs"]),
    (
        "hyper",
        &[
            "base/telemetry/src/server.rs",
            "coordinator/console/src/connections.rs",
            "integration-tests/tests/backup_objects/s3.rs",
            "member/agent/src/http/",
        ],
    ),
    ("object_store", &["backup/src/store/"]),
    ("opentelemetry", &["cli/src/spans.rs"]),
    (
        "metrics",
        &["client/src/measure/", "integration-tests/tests/client_metrics.rs", "member/agent/src/library_metrics.rs"],
    ),
    ("axum", &["coordinator/console/src/"]),
    // Others may name it only where they configure a library with the process's provider.
    (
        "rustls",
        &["base/security/", "backup/src/store/objects/client.rs", "integration-tests/src/bin/redis_rs_driver.rs"],
    ),
    ("x509_parser", &["base/security/src/tls/certificate.rs", "base/security/certificates/tests/"]),
    ("ratatui", &["cli/src/admin/top/"]),
    ("hashbrown", &["kvstore-node/kv/src/rows/row_map.rs", "kvstore-node/src/shard/cache.rs", "base/wal/src/"]),
    ("quick_cache", &["kvstore-node/src/shard/cache.rs"]),
    (
        "crc32c",
        &[
            "base/wal/",
            "backup/src/",
            "coordinator/src/raft/",
            "coordinator/tests/it/strangers.rs",
            "integration-tests/tests/quorum/states_differ.rs",
            "kvstore-node/src/engine/sled.rs",
            "kvstore-node/src/copies/pages.rs",
            "kvstore-node/tests/it/loaders.rs",
            "checks/fuzz/",
        ],
    ),
];

/// Forbidden dependencies of a pure room.
const PURE: &[&str] = &[
    "proto/types",
    "coordinator/core",
    "member",
    "kvstore-node/host",
    "kvstore-node/kv",
    "kvstore-node/replica",
    "kvstore-node/resp",
];
const IMPURE: &[&str] = &["tokio", "tonic", "sled", "lsm_tree", "openraft", "rand", "tracing", "rustix", "parking_lot"];

fn manifest(folder: &str) -> toml::Table {
    let path = root().join(folder).join("Cargo.toml");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn dependencies(folder: &str, section: &str) -> BTreeSet<String> {
    let manifest = manifest(folder);
    manifest
        .get(section)
        .and_then(toml::Value::as_table)
        .map(|table| table.keys().cloned().collect())
        .unwrap_or_default()
}

fn sources() -> Vec<(String, String)> {
    let files = files_below(&root(), &[".rs"]);
    assert!(files.len() > 50, "found only {} source files below {}", files.len(), root().display());
    files
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let name = path.strip_prefix(root()).expect("below the root").display().to_string();
            (name, text)
        })
        .collect()
}

#[test]
fn rooms_depend_only_on_allowed_rooms() {
    let mut wrong = Vec::new();
    for (folder, _, allowed) in MAY_DEPEND_ON {
        for dependency in dependencies(folder, "dependencies") {
            if dependency.starts_with("archon-") && !allowed.contains(&dependency.as_str()) {
                wrong.push(format!("{folder} depends on {dependency}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Recipes with moved files mislead contributors.
#[test]
fn files_named_by_contributing_exist() {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).expect("a guide");
    let extensions = [".rs", ".md", ".proto", ".toml"];
    let named: BTreeSet<&str> = text
        .split(['`', '(', ')'])
        .filter(|word| {
            word.contains('/') && !word.contains([' ', ':']) && extensions.iter().any(|end| word.ends_with(end))
        })
        .collect();
    assert!(named.len() > 40, "only {} files found: {named:?}", named.len());
    let missing: Vec<_> = named.into_iter().filter(|name| !root().join(name).exists()).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_room_is_listed() {
    let listed: BTreeSet<&str> = MAY_DEPEND_ON.iter().map(|(folder, ..)| *folder).collect();
    let see_all = BTreeSet::from(["integration-tests", "tools/bench", "checks/fuzz"]);
    let workspace: toml::Table =
        fs::read_to_string(root().join("Cargo.toml")).expect("manifest").parse().expect("toml");
    let members = workspace["workspace"]["members"].as_array().expect("members");
    for member in members.iter().filter_map(toml::Value::as_str) {
        assert!(listed.contains(member) || see_all.contains(member), "{member} has no rule in MAY_DEPEND_ON");
    }
    for (folder, name, _) in MAY_DEPEND_ON {
        let manifest = manifest(folder);
        assert_eq!(dependency_key(manifest["package"]["name"].as_str().expect("a name")), *name);
    }
}

/// Rules can be disabled, and disks can lose writes, in tests only: no room's own dependencies and no defaults enable
/// that.
#[test]
fn no_product_build_can_disable_a_rule() {
    let mut wrong = Vec::new();
    for (folder, ..) in MAY_DEPEND_ON {
        let manifest = manifest(folder);
        let enables = |value: &toml::Value| {
            let value = value.to_string();
            value.contains("mutants") || value.contains("testing")
        };
        let features = manifest.get("features").and_then(toml::Value::as_table);
        if features.and_then(|features| features.get("default")).is_some_and(enables) {
            wrong.push(format!("{folder} turns what is for tests on by default"));
        }
        let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
        if dependencies.is_some_and(|table| table.values().any(enables)) {
            wrong.push(format!("{folder} depends on a room with what is for tests"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Libraries that come only with an optional feature, with the room and the feature.
const BY_FEATURE: &[(&str, &str, &[&str])] = &[
    ("client", "metrics", &["metrics"]),
    ("cli", "otlp", &["opentelemetry", "opentelemetry-otlp", "opentelemetry_sdk", "tracing-opentelemetry"]),
];

/// Rooms that turn a feature on, with its room and name: nothing above them is a library for others.
const TURNS_ON: &[(&str, &str, &str)] = &[
    // The agent exports the metrics of the participant that it runs.
    ("member/agent", "client", "metrics"),
];

#[test]
fn optional_libraries_come_only_with_their_feature() {
    let mut wrong = Vec::new();
    for (folder, feature, libraries) in BY_FEATURE {
        let room = manifest(folder);
        let features = room["features"].as_table().expect("features");
        let brought = features[*feature].as_array().expect("a list");
        for library in *libraries {
            let optional = room["dependencies"][*library].get("optional").and_then(toml::Value::as_bool);
            if optional != Some(true) || !brought.contains(&format!("dep:{library}").into()) {
                wrong.push(format!("{folder} takes {library} without its feature {feature}"));
            }
        }
        if features.get("default").is_some_and(|default| default.to_string().contains(feature)) {
            wrong.push(format!("{folder} has {feature} on by default"));
        }
        let (_, name, _) = MAY_DEPEND_ON.iter().find(|(of, ..)| of == folder).expect("a room");
        for (other, ..) in MAY_DEPEND_ON {
            let manifest = manifest(other);
            let asked = manifest.get("dependencies").and_then(|all| all.get(*name)?.get("features"));
            let may = TURNS_ON.contains(&(*other, *folder, *feature));
            if !may && asked.is_some_and(|asked| asked.to_string().contains(feature)) {
                wrong.push(format!("{other} turns {feature} of {folder} on for everybody"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn pure_rooms_have_no_clock_no_network_and_no_disk() {
    let mut wrong = Vec::new();
    for folder in PURE {
        let found = dependencies(folder, "dependencies");
        wrong.extend(IMPURE.iter().filter(|name| found.contains(**name)).map(|name| format!("{folder}: {name}")));
    }
    for (name, text) in sources() {
        // Tests inside a pure room may print seeds and run in parallel; the room itself may not.
        let is_test = name.contains("/tests/") || name.ends_with("_tests.rs") || name.ends_with("/tests.rs");
        let in_pure = !is_test && PURE.iter().any(|folder| name.starts_with(&format!("{folder}/src")));
        // Types and functions are banned individually, with reasons, by the rooms' clippy.toml; clippy cannot ban a
        // module.
        let banned = ["std::fs", "std::thread", "std::process", "std::env"];
        if in_pure {
            wrong.extend(banned.iter().filter(|word| text.contains(**word)).map(|word| format!("{name}: {word}")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Clippy reads only the nearest file, so each pure room contains the bans.
#[test]
fn pure_rooms_ban_the_same_clocks_and_maps() {
    let read = |folder: &str| {
        let path = root().join(folder).join("clippy.toml");
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let first = read(PURE[0]);
    for folder in PURE {
        assert!(read(folder) == first, "{folder}/clippy.toml differs from {}/clippy.toml", PURE[0]);
    }
    for line in read("").lines() {
        assert!(
            first.lines().any(|found| found == line),
            "{line:?} of the workspace's clippy.toml is missing in the pure rooms"
        );
    }
}

#[test]
fn libraries_are_named_only_in_their_room() {
    let mut wrong = Vec::new();
    for (name, text) in sources() {
        for (library, allowed) in ONLY_NAMED_IN {
            let named = [format!("use {library}"), format!("{library}::")];
            let names_it = text
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"))
                .any(|line| named.iter().any(|word| names_word(line, word)));
            if names_it && !allowed.iter().any(|folder| name.starts_with(folder)) {
                wrong.push(format!("{name} names {library}; allowed in {allowed:?}"));
            }
        }
    }
    wrong.retain(|line| !line.starts_with("checks/tidy/tests/it/rules.rs"));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns every member of the workspace with its sources, without those of members below it.
fn members() -> Vec<(String, String)> {
    let workspace: toml::Table =
        fs::read_to_string(root().join("Cargo.toml")).expect("manifest").parse().expect("toml");
    let members = workspace["workspace"]["members"].as_array().expect("members");
    let folders: Vec<&str> = members.iter().filter_map(toml::Value::as_str).collect();
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    for (name, text) in sources() {
        let within = folders.iter().filter(|folder| name.starts_with(&format!("{folder}/")));
        let Some(folder) = within.max_by_key(|folder| folder.len()) else { continue };
        texts.entry(folder).or_default().push_str(&text);
    }
    texts.into_iter().map(|(folder, text)| (folder.to_owned(), text)).collect()
}

#[test]
fn declared_dependencies_are_used() {
    let (mut wrong, mut taken) = (Vec::new(), BTreeSet::new());
    for (folder, text) in members() {
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for dependency in dependencies(&folder, section) {
                let word = dependency.replace('-', "_");
                let excused = NOT_NAMED.iter().any(|(of, name, _)| (*of, *name) == (folder.as_str(), &*dependency));
                if holds_word(&text, &word) == excused {
                    wrong.push(format!("{folder}: {section}: {dependency} (excused: {excused})"));
                }
                let inherited = manifest(&folder)[section][&dependency].get("workspace").is_some();
                taken.extend(inherited.then_some(dependency));
            }
        }
    }
    let workspace: toml::Table =
        fs::read_to_string(root().join("Cargo.toml")).expect("manifest").parse().expect("toml");
    let declared = workspace["workspace"]["dependencies"].as_table().expect("a table");
    wrong.extend(declared.keys().filter(|name| !taken.contains(*name)).map(|name| format!("workspace: {name}")));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn duplicate_library_versions_do_not_increase() {
    let lock: toml::Table = fs::read_to_string(root().join("Cargo.lock")).expect("a lock").parse().expect("toml");
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in lock["package"].as_array().expect("packages") {
        let word = |key: &str| package[key].as_str().expect("a string");
        versions.entry(word("name")).or_default().push(word("version"));
    }
    versions.retain(|_, versions| versions.len() > 1);
    let more: usize = versions.values().map(|versions| versions.len() - 1).sum();
    println!("{} libraries come in several versions, {more} packages more than needed: {versions:?}", versions.len());
    assert!(more <= MORE_VERSIONS_MAX, "{more} packages more than needed, {MORE_VERSIONS_MAX} may be: {versions:#?}");
    assert!(more == MORE_VERSIONS_MAX, "only {more} packages more than needed: lower MORE_VERSIONS_MAX");
}

/// A test that cannot run on its machine calls `archon_testkit::skipped`, which fails where changes are judged.
#[test]
fn no_test_is_skipped_silently() {
    let word = ["\"", "skipped"].concat();
    let mut wrong: Vec<_> = sources()
        .into_iter()
        .filter(|(name, _)| !name.starts_with("integration-tests/testkit/") && !name.starts_with("tools/bench/"))
        .filter(|(_, text)| text.lines().any(|line| line.contains("println!") && line.contains(&word)))
        .map(|(name, _)| name)
        .collect();
    wrong.retain(|name| name != "checks/tidy/tests/it/rules.rs");
    assert!(wrong.is_empty(), "not by archon_testkit: {wrong:#?}");
}

/// Returns true if `text` contains `word` as a whole name.
fn holds_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(part) && !text[at + word.len()..].chars().next().is_some_and(part)
    })
}

/// Returns true if `line` contains `word` as a whole word (`engine::sled::X` is our module, not the library).
fn names_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let whole = !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':');
        whole && (word.ends_with("::") || matches!(after, Some(':' | ';') | None))
    })
}

#[test]
fn word_matcher_distinguishes_library_and_module() {
    assert!(names_word("    let db = sled::open(path)?;", "sled::"));
    assert!(names_word("use sled;", "use sled"));
    assert!(!names_word("let engine = engine::sled::SledEngine::open(path)?;", "sled::"));
    assert!(!names_word("use sledge::Hammer;", "use sled"));
}

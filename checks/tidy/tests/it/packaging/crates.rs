//! Crates that are published, and the packages of other languages: their manifests, compared with the workspace.

use super::{version, workspace};
use archon_tidy::{PUBLISHED_PREFIX, dependency_key, files_below, names, root, source};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Crates that users name; the others are published because these depend on them.
const NAMED_BY_USERS: [&str; 2] = ["archon-cli", "archon-client"];

fn manifest(folder: &str) -> toml::Table {
    source(&format!("{folder}/Cargo.toml")).parse().unwrap_or_else(|error| panic!("{folder}: {error}"))
}

/// Returns the name of a crate's package.
fn package(folder: &str) -> String {
    manifest(folder)["package"]["name"].as_str().expect("a name").to_owned()
}

/// Returns the folder of each crate of the workspace by the key under which other crates depend on it.
fn folders() -> BTreeMap<String, String> {
    let workspace = workspace();
    let members = workspace["workspace"]["members"].as_array().expect("members");
    let folder = |member: &toml::Value| member.as_str().expect("a folder").to_owned();
    let named = |folder: String| (dependency_key(&package(&folder)), folder);
    members.iter().map(folder).map(named).collect()
}

/// Returns the crates of the workspace that a crate is built with.
fn dependencies(folder: &str) -> Vec<String> {
    let manifest = manifest(folder);
    let table = manifest.get("dependencies").and_then(toml::Value::as_table);
    let names = table.into_iter().flat_map(|table| table.keys());
    names.filter(|name| name.starts_with("archon-")).cloned().collect()
}

fn is_published(folder: &str) -> bool {
    manifest(folder)["package"].get("publish").is_none()
}

#[test]
fn crates_of_users_are_published_with_their_dependencies() {
    let folders = folders();
    let mut needed = BTreeSet::new();
    let mut next = NAMED_BY_USERS.map(str::to_owned).to_vec();
    while let Some(name) = next.pop() {
        if needed.insert(name.clone()) {
            next.extend(dependencies(&folders[&name]));
        }
    }
    let published: BTreeSet<String> =
        folders.iter().filter(|(_, folder)| is_published(folder)).map(|(name, _)| name.clone()).collect();
    assert_eq!(published, needed, "crates without `publish.workspace = true` are those that users build");
    assert!(published.len() > 20, "{published:?}");
}

/// Sources keep the names of libraries, and manifests the keys of dependencies: only a package has the prefix.
#[test]
fn published_packages_alone_have_the_prefix() {
    let workspace = workspace();
    let declared = workspace["workspace"]["dependencies"].as_table().expect("a table");
    for (key, folder) in folders() {
        let rest = key.strip_prefix("archon-").unwrap_or_else(|| panic!("{folder}: {key}"));
        let manifest = manifest(&folder);
        let library = manifest.get("lib").and_then(|lib| lib.get("name")).and_then(toml::Value::as_str);
        if is_published(&folder) {
            assert_eq!(package(&folder), format!("{PUBLISHED_PREFIX}{rest}"), "{folder}: [package] name");
            assert_eq!(library, Some(key.replace('-', "_").as_str()), "{folder}: [lib] name");
            let found = declared[&key].get("package").and_then(toml::Value::as_str);
            assert_eq!(found, Some(package(&folder).as_str()), "{key} in [workspace.dependencies]");
        } else {
            assert_eq!((package(&folder), library), (key, None), "{folder}");
        }
    }
}

#[test]
fn published_crate_has_description_readme_and_licence() {
    let mut described = BTreeSet::new();
    for (name, folder) in folders().into_iter().filter(|(_, folder)| is_published(folder)) {
        let manifest = manifest(&folder);
        let package = manifest["package"].as_table().expect("a table");
        for key in ["version", "edition", "rust-version", "license", "repository"] {
            assert_eq!(package.get(key).and_then(|of| of["workspace"].as_bool()), Some(true), "{name}: {key}");
        }
        let text =
            |key: &str| package.get(key).and_then(toml::Value::as_str).unwrap_or_else(|| panic!("{name}: {key}"));
        assert!(text("description").len() > 30 && !text("description").ends_with('.'), "{name}");
        assert!(described.insert(text("description").to_owned()), "{name} has the description of another crate");
        assert!(root().join(&folder).join(text("readme")).is_file(), "{name}: {}", text("readme"));
        if NAMED_BY_USERS.contains(&name.as_str()) {
            assert!(package.contains_key("keywords") && package.contains_key("categories"), "{name}");
        }
    }
}

/// A published crate names its siblings by version; by path alone it would name nothing.
#[test]
fn published_siblings_have_the_version_of_the_workspace() {
    let workspace = workspace();
    let declared = workspace["workspace"]["dependencies"].as_table().expect("a table");
    for (name, folder) in folders() {
        if let Some(dependency) = declared.get(&name) {
            // Exactly this one: crates that are no interface may change in every version.
            let expected = is_published(&folder).then(|| format!("={}", version()));
            let found = dependency.get("version").and_then(toml::Value::as_str).map(str::to_owned);
            assert_eq!(found, expected, "{name} in [workspace.dependencies]");
        }
    }
}

/// A crate can be published once those that it names by version are there, also those of its tests.
#[test]
fn published_crates_can_be_published_in_some_order() {
    let folders = folders();
    let mut left: BTreeMap<&String, BTreeSet<String>> = BTreeMap::new();
    for (name, folder) in folders.iter().filter(|(_, folder)| is_published(folder)) {
        let manifest = manifest(folder);
        let tests = manifest.get("dev-dependencies").and_then(toml::Value::as_table).cloned().unwrap_or_default();
        let by_version = tests.into_iter().filter(|(_, of)| of.get("workspace").is_some()).map(|(name, _)| name);
        let siblings = by_version.filter(|name| folders.get(name).is_some_and(|folder| is_published(folder)));
        left.insert(name, siblings.chain(dependencies(folder)).collect());
    }
    while let Some(name) =
        left.iter().find(|(_, needs)| needs.iter().all(|of| !left.contains_key(of))).map(|(name, _)| *name)
    {
        left.remove(name);
    }
    assert!(left.is_empty(), "these need each other; name a dependency of tests by its path alone: {left:#?}");
}

/// Cargo only warns of a profile for a package that does not exist, and the setting has no effect.
#[test]
fn profiles_name_existing_packages() {
    let lock: toml::Table = source("Cargo.lock").parse().expect("TOML");
    let packages = lock["package"].as_array().expect("packages");
    let known: BTreeSet<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let workspace = workspace();
    let profiles = workspace["profile"].as_table().expect("profiles").values();
    let named = profiles.filter_map(|profile| profile.get("package")?.as_table()).flat_map(toml::Table::keys);
    let unknown: Vec<_> = named.filter(|name| *name != "*" && !known.contains(name.as_str())).collect();
    assert!(unknown.is_empty(), "no packages: {unknown:?}");
}

#[test]
fn packages_of_all_languages_have_one_version() {
    let version = version();
    let python: toml::Table = source("clients/python/pyproject.toml").parse().expect("TOML");
    assert_eq!(python["project"]["version"].as_str(), Some(version.as_str()));
    assert!(source("clients/typescript/package.json").contains(&format!("\n  \"version\": \"{version}\",\n")));
    assert_eq!(names("clients"), ["python", "typescript"]);
    // Its lock file names what was downloaded, not from where.
    assert!(!source("clients/typescript/package-lock.json").contains("\"resolved\""));
}

/// Asks no registry: only a build of the crates needs it.
#[test]
fn files_of_published_crates_are_complete() {
    let folders = folders();
    let published: Vec<String> =
        folders.values().filter(|folder| is_published(folder)).map(|folder| package(folder)).collect();
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["package", "--list", "--offline", "--locked", "--allow-dirty"]).current_dir(root());
    for name in &published {
        command.args(["--package", name]);
    }
    let output = command.output().expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8(output.stdout).expect("a text");
    let count = |file: &str| listed.lines().filter(|line| *line == file).count();
    assert_eq!(count("Cargo.toml"), published.len());
    assert_eq!(count("README.md") + count("crate.md"), published.len());
    // The licence asks for a copy of itself.
    assert_eq!(count("LICENSE"), published.len());
    assert_eq!(count("src/lib.rs"), published.len());
    // Files that builds read beside sources.
    for file in
        ["build.rs", "src/generated/archon.v1.rs", "src/generated/descriptors.bin", "src/main.rs", "page/index.html"]
    {
        assert!(count(file) > 0, "{file} is in no crate");
    }
}

/// A packed crate has only files of its own folder, without those of crates below it.
#[test]
fn published_sources_include_no_file_of_other_folders() {
    let (mut wrong, mut included) = (Vec::new(), 0);
    let root = root().canonicalize().expect("the root");
    for folder in folders().into_values().filter(|folder| is_published(folder)) {
        for source in files_below(&root.join(folder), &[".rs"]) {
            let text = std::fs::read_to_string(&source).expect("a text");
            for path in included_paths(&text) {
                let file = source.parent().expect("a folder").join(path);
                let file = file.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", file.display()));
                included += 1;
                if crate_of(&file) != crate_of(&source) {
                    wrong.push(format!("{} includes {path}", source.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(included > 2, "only {included} included files found");
}

/// Returns the folder of the crate that a file belongs to.
fn crate_of(file: &Path) -> Option<&Path> {
    file.ancestors().find(|folder| folder.join("Cargo.toml").is_file())
}

/// Returns the paths in `include_str!`, `include_bytes!`, `include!` and `#[path = …]`; of `concat!` its first literal.
fn included_paths(text: &str) -> Vec<&str> {
    let begins = ["include_str!(", "include_bytes!(", "include!(", "#[path = "];
    let after = begins.iter().flat_map(|begin| text.split(begin).skip(1)).map(str::trim_start);
    let paths = after.map(|rest| {
        let literal = rest.strip_prefix("concat!(").unwrap_or(rest).trim_start().strip_prefix('"');
        literal.and_then(|rest| rest.split('"').next()).unwrap_or_else(|| panic!("no literal: {rest:.40}"))
    });
    paths.collect()
}

#[test]
fn included_paths_are_found_in_all_forms() {
    let text = "include_str!(\n    \"a\") include_bytes!(concat!(\"b/\", $name)) #[path = \"c.rs\"] include!(\"d\")";
    assert_eq!(included_paths(text), ["a", "b/", "d", "c.rs"]);
}

/// Crates of strangers have such names in the registry, and ours are not published yet (docs/operate/releases.md).
#[test]
fn no_page_installs_a_crate_of_strangers() {
    for page in files_below(&root(), &[".md"]) {
        let text = std::fs::read_to_string(&page).expect("a text");
        for command in ["cargo install archon", "cargo add archon"] {
            assert!(!text.contains(command), "{}: {command}…", page.display());
        }
    }
}

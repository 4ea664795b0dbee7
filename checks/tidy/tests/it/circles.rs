//! Circles of imports: files of a crate that import each other, directly or through others. None can be read, tested or moved
//! alone. Counts paths in code, without tests; names that a module re-exports count for the file that declares them.

use archon_tidy::{files_below, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Largest allowed circle of each crate, in files. A budget may fall and never rises; a crate that is not listed has none.
const BUDGETS: &[(&str, usize)] = &[
    ("backup", 9),
    ("base/security", 3),
    ("base/security/certificates", 2),
    ("base/telemetry", 2),
    ("base/wal", 5),
    ("checks/simulator", 7),
    ("cli", 7),
    ("client", 7),
    ("coordinator", 5),
    ("coordinator/core", 3),
    ("examples/zombies", 3),
    ("integration-tests", 3),
    ("kvstore-node", 6),
    ("kvstore-node/host", 2),
    ("kvstore-node/kv", 4),
    ("kvstore-node/replica", 7),
    ("member", 2),
    ("member/session", 2),
    ("proto", 3),
    ("proto/documents", 3),
    ("proto/frames", 2),
    ("proto/types", 4),
    ("tools/load", 3),
    ("tools/local-cluster", 2),
];

/// Parts of a path in code: `["crate", "state", "Nodes"]`.
type Path = Vec<String>;

/// Returns the words and marks of a source, without comments, literals and lifetimes.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let begins_word = |c: char| c.is_alphabetic() || c == '_';
        let hashes = |after: &str| after.len() - after.trim_start_matches('#').len();
        let raw = ["r", "br", "cr"].iter().find_map(|begin| {
            let after = rest.strip_prefix(begin)?;
            after[hashes(after)..].starts_with('"').then(|| (begin.len(), hashes(after)))
        });
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some((begin, hashes)) = raw {
            let begin = begin + hashes + 1;
            let close = format!("\"{}", "#".repeat(hashes));
            rest[begin..].find(&close).map_or(rest.len(), |end| begin + end + close.len())
        } else if first == '"' {
            literal(rest, '"')
        } else if first == '\'' {
            let after = &rest[1..];
            let is_lifetime = after.starts_with(begins_word) && after.chars().nth(1).is_none_or(|next| next != '\'');
            if is_lifetime { 1 + word_length(after) } else { literal(rest, '\'') }
        } else if begins_word(first) {
            let length = word_length(rest);
            words.push(rest[..length].to_owned());
            length
        } else if rest.starts_with("::") {
            words.push("::".to_owned());
            2
        } else {
            words.extend((!first.is_whitespace()).then(|| first.to_string()));
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    words
}

fn word_length(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())
}

/// Returns the length of a literal with its marks.
fn literal(text: &str, mark: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == mark => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// One file: the modules in it, the paths that it imports and names, and the names that each module binds.
#[derive(Default)]
struct Source {
    modules: Vec<Path>,
    /// Modules that only tests have.
    test_modules: Vec<Path>,
    /// Paths with the module in which they stand.
    paths: Vec<(Path, Path)>,
    /// Bound names: module, name, path.
    names: Vec<(Path, String, Path)>,
}

impl Source {
    /// Reads the file of a module.
    fn read(module: &Path, text: &str) -> Self {
        let mut found = Self { modules: vec![module.clone()], ..Self::default() };
        let words = words(text);
        let mut inside: Vec<(String, usize)> = Vec::new();
        let (mut at, mut depth) = (0, 0);
        while at < words.len() {
            let here = || module.iter().cloned().chain(inside.iter().map(|(name, _)| name.clone())).collect::<Path>();
            let word = words[at].as_str();
            let next = |by: usize| words.get(at + by).map_or("", String::as_str);
            if word == "#"
                && next(1) == "["
                && next(2) == "cfg"
                && next(3) == "("
                && next(4) == "test"
                && next(5) == ")"
            {
                let end = item_end(&words, at + 7);
                let name = words[at + 7..end].iter().position(|word| word == "mod").map(|mark| at + 8 + mark);
                if let Some(name) = name.and_then(|name| words.get(name)) {
                    found.test_modules.push([here(), vec![name.clone()]].concat());
                }
                at = end;
                continue;
            }
            match word {
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    if inside.last().is_some_and(|(_, of)| *of == depth) {
                        inside.pop();
                    }
                }
                "mod" if next(2) == "{" => {
                    inside.push((next(1).to_owned(), depth));
                    depth += 1;
                    found
                        .modules
                        .push(module.iter().cloned().chain(inside.iter().map(|(name, _)| name.clone())).collect());
                    at += 3;
                    continue;
                }
                "use" if next(1) != "<" => {
                    at = found.take_use(&here(), &words, at + 1, &Vec::new());
                    continue;
                }
                _ if next(1) == "::"
                    && !matches!(at.checked_sub(1).map(|before| words[before].as_str()), Some("::" | ".")) =>
                {
                    let mut path = vec![word.to_owned()];
                    while words.get(at + 1).is_some_and(|mark| mark == "::")
                        && words.get(at + 2).is_some_and(|word| word_length(word) > 0)
                    {
                        at += 2;
                        path.push(words[at].clone());
                    }
                    found.paths.push((here(), path));
                }
                _ => {}
            }
            at += 1;
        }
        found
    }

    /// Takes a tree of imports. Returns the position after it.
    fn take_use(&mut self, here: &Path, words: &[String], mut at: usize, before: &Path) -> usize {
        let mut path = before.clone();
        loop {
            match words.get(at).map_or(";", String::as_str) {
                "{" => {
                    at += 1;
                    while words.get(at).is_some_and(|word| word != "}") {
                        at = self.take_use(here, words, at, &path);
                        at += usize::from(words.get(at).is_some_and(|word| word == ","));
                    }
                    return at + 1;
                }
                "as" => {
                    let name = words[at + 1].clone();
                    self.names.push((here.clone(), name, path.clone()));
                    self.paths.push((here.clone(), path));
                    return at + 2;
                }
                "," | ";" | "}" => {
                    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
                        path.pop();
                    }
                    if let Some(name) = path.last() {
                        self.names.push((here.clone(), name.clone(), path.clone()));
                    }
                    self.paths.push((here.clone(), path));
                    return at;
                }
                "::" => {}
                "*" => {}
                word => path.push(word.to_owned()),
            }
            at += 1;
        }
    }
}

/// Returns the position after the item that begins here: after its `;`, or its closing brace.
fn item_end(words: &[String], mut at: usize) -> usize {
    let mut depth = 0;
    let is_use = words[at..].iter().take(4).any(|word| word == "use");
    while let Some(word) = words.get(at) {
        at += 1;
        match word.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth -= 1;
                if word == "}" && depth == 0 && !is_use {
                    return at;
                }
                if depth < 0 {
                    return at - 1;
                }
            }
            // A field, a variant or an argument.
            "," if depth == 0 => return at,
            ";" if depth == 0 => return at,
            _ => {}
        }
    }
    at
}

/// Returns the module of a file below `src`.
fn module_of(file: &str) -> Path {
    let mut module: Path = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

/// The modules of a crate.
struct Modules<'a> {
    files: BTreeMap<Path, &'a str>,
    names: BTreeMap<(Path, String), Path>,
}

impl<'a> Modules<'a> {
    /// Returns the absolute form of a path in a module; `None` if it is of another crate.
    fn absolute(&self, here: &Path, path: &[String]) -> Option<Path> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => self.absolute(here, rest).or_else(|| Some([here, rest].concat())),
            "super" => {
                let parent = here.split_last()?.1.to_vec();
                if rest.first().is_some_and(|next| next == "super") {
                    self.absolute(&parent, rest)
                } else {
                    Some([&parent, rest].concat())
                }
            }
            _ => self.files.contains_key(&[here.clone(), vec![first.clone()]].concat()).then(|| [here, path].concat()),
        }
    }

    /// Returns the file that declares what an absolute path names; `None` if the path names only a module.
    fn declaring(&self, mut path: Path) -> Option<&'a str> {
        for _ in 0..8 {
            let module =
                (0..=path.len()).rev().map(|count| &path[..count]).find(|module| self.files.contains_key(*module))?;
            let name = path.get(module.len())?;
            match self.names.get(&(module.to_vec(), name.clone())) {
                Some(other) if !other.starts_with(&path[..=module.len()]) => {
                    path = [other, &path[module.len() + 1..]].concat()
                }
                _ => return self.files.get(module).copied(),
            }
        }
        None
    }
}

/// Returns the files that a file imports, directly or through others.
fn reachable<'a>(imports: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &'a str) -> BTreeSet<&'a str> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(file) = open.pop() {
        open.extend(imports.get(file).into_iter().flatten().copied().filter(|next| reached.insert(*next)));
    }
    reached
}

/// Returns the circles among the files of a crate, largest first. Files are named relative to `src`.
fn circles(files: &BTreeMap<String, String>) -> Vec<Vec<&str>> {
    let mut sources: Vec<(&str, Source)> =
        files.iter().map(|(file, text)| (file.as_str(), Source::read(&module_of(file), text))).collect();
    let tests: Vec<Path> = sources.iter().flat_map(|(_, source)| source.test_modules.clone()).collect();
    sources.retain(|(file, _)| !tests.iter().any(|test| module_of(file).starts_with(test)));
    let mut modules = Modules { files: BTreeMap::new(), names: BTreeMap::new() };
    for (file, source) in &sources {
        modules.files.extend(source.modules.iter().map(|module| (module.clone(), *file)));
    }
    for (_, source) in &sources {
        for (here, name, path) in &source.names {
            if let Some(path) = modules.absolute(here, path) {
                modules.names.insert((here.clone(), name.clone()), path);
            }
        }
    }
    let mut imports: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    // The root names what the crate exports.
    for (file, source) in sources.iter().filter(|(file, _)| !["lib.rs", "main.rs"].contains(file)) {
        for (here, path) in &source.paths {
            let bound = path.first().and_then(|first| modules.names.get(&(here.clone(), first.clone())));
            let bound = bound.filter(|_| path.len() > 1).map(|bound| [bound, &path[1..]].concat());
            let Some(path) = bound.or_else(|| modules.absolute(here, path)) else { continue };
            imports.entry(file).or_default().extend(modules.declaring(path).filter(|other| other != file));
        }
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|file| (*file, reachable(&imports, file))).collect();
    let mut circles = BTreeSet::new();
    for (file, others) in &reached {
        let back = |other: &&&str| reached.get(**other).is_some_and(|back| back.contains(file));
        let circle: Vec<&str> = others.iter().filter(back).copied().collect();
        circles.extend((circle.len() > 1).then_some(circle));
    }
    let mut circles: Vec<Vec<&str>> = circles.into_iter().collect();
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

/// Returns the sources of each crate that has a library or a program, by file below `src`.
fn crates() -> BTreeMap<String, BTreeMap<String, String>> {
    let mut crates: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for path in files_below(&root(), &[".rs"]) {
        let name = path.strip_prefix(root()).expect("below the root").display().to_string();
        let Some((folder, file)) = name.split_once("/src/") else { continue };
        if file.starts_with("bin/") || !root().join(folder).join("Cargo.toml").exists() {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        crates.entry(folder.to_owned()).or_default().insert(file.to_owned(), text);
    }
    crates
}

#[test]
fn circles_of_imports_stay_within_their_budgets() {
    let crates = crates();
    assert!(crates.len() > 20, "found only {} crates", crates.len());
    for (folder, _) in BUDGETS {
        assert!(crates.contains_key(*folder), "{folder} has a budget and no sources");
    }
    let mut wrong = Vec::new();
    for (folder, files) in &crates {
        let budget = BUDGETS.iter().find(|(of, _)| of == folder).map_or(1, |(_, budget)| *budget);
        for circle in circles(files).into_iter().filter(|circle| circle.len() > budget) {
            wrong.push(format!("{folder}: {} files, and {budget} are allowed: {}", circle.len(), circle.join(" ")));
        }
    }
    assert!(
        wrong.is_empty(),
        "circles of imports; move what the lower file needs into a file that imports neither:\n{}",
        wrong.join("\n")
    );
}

fn found(files: &[(&str, &str)]) -> Vec<String> {
    let files = files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
    circles(&files).iter().map(|circle| circle.join(" ")).collect()
}

#[test]
fn circle_through_other_files_is_found() {
    let a = ("a.rs", "use crate::b::{self};\nfn f() { b::g() }");
    assert_eq!(
        found(&[a, ("b/mod.rs", "mod c;\npub use c::g;"), ("b/c.rs", "pub fn g() { crate::a::f() }")]),
        ["a.rs b/c.rs"]
    );
    assert_eq!(found(&[a, ("b/mod.rs", "mod c;\npub use c::g;"), ("b/c.rs", "pub fn g() {}")]), Vec::<String>::new());
    let three =
        [("a.rs", "use super::b::B;"), ("b.rs", "struct B(crate::c::C);"), ("c.rs", "struct C(Vec<super::a::A>);")];
    assert_eq!(found(&three), ["a.rs b.rs c.rs"]);
}

#[test]
fn tests_comments_and_literals_import_nothing() {
    let b = ("b.rs", "use crate::a::A;");
    assert_eq!(found(&[("a.rs", "use crate::b::B;"), b]), ["a.rs b.rs"]);
    for text in [
        "#[cfg(test)]\nmod tests { use crate::b::B; }",
        "#[cfg(test)]\nuse crate::b::{B, C};\nstruct A;",
        "// crate::b::B\n/* crate::b::B */ const A: (&str, &[u8], char) = (\"crate::b::B\", br#\"\" crate::b::B\"#, '\"');",
        "struct A<'a>(&'a u8);",
    ] {
        assert_eq!(found(&[("a.rs", text), b]), Vec::<String>::new(), "{text}");
    }
    let tests = [("a.rs", "use crate::b::B;"), ("lib.rs", "#[cfg(test)]\nmod b;"), b];
    assert_eq!(found(&tests), Vec::<String>::new());
}

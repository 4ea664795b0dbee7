//! What the program says of itself.

use archon_integration_tests::Notified;
use archon_integration_tests::ports::free_addresses;
use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use yaml_rust2::{Yaml, YamlLoader};

pub(crate) const EXE: &str = env!("CARGO_BIN_EXE_archon-under-test");

/// What `archon VERB --help` says.
#[track_caller]
fn help(verb: &[&str]) -> String {
    let ran = Command::new(EXE).args(verb).arg("--help").output().expect("the program starts");
    assert!(ran.status.success(), "{verb:?} is no verb: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("text")
}

/// The flags and variables of a verb.
pub(crate) struct Options {
    flags: BTreeSet<String>,
    variables: BTreeSet<String>,
}

impl Options {
    pub(crate) fn of(verb: &[&str]) -> Self {
        let text = help(verb);
        let words = || text.split([' ', '\n', ',', '[', ']']).filter(|word| !word.is_empty());
        let flags: BTreeSet<_> = words().filter(|word| word.starts_with("--")).map(ToOwned::to_owned).collect();
        let variables =
            words().filter(|word| word.starts_with("ARCHON_") && word.is_ascii()).map(ToOwned::to_owned).collect();
        assert!(flags.contains("--timeout"), "{verb:?}: {flags:?}");
        Self { flags, variables }
    }

    #[track_caller]
    pub(crate) fn check_flag(&self, place: &str, flag: &str) {
        let flag = flag.split('=').next().unwrap_or_default();
        assert!(self.flags.contains(flag), "{place}: {flag} is no flag; there are {:?}", self.flags);
    }

    /// Of variables that do not begin as ours do nothing is known.
    #[track_caller]
    pub(crate) fn check_variable(&self, place: &str, variable: &str) {
        let known = !variable.starts_with("ARCHON_") || self.variables.contains(variable);
        assert!(known, "{place}: {variable} is no variable; there are {:?}", self.variables);
    }
}

/// Checks verb and flags of a command without the program.
#[track_caller]
pub(crate) fn check_command(place: &str, words: &[&str]) {
    let [first, rest @ ..] = words else { panic!("{place}: no verb") };
    let has_verbs = help(&[first]).contains("\nCommands:\n");
    // What follows a verb that has none, such as a key, is no verb.
    let second = rest.first().filter(|word| has_verbs && !word.starts_with('-'));
    let verb: Vec<&str> = [Some(first), second].into_iter().flatten().copied().collect();
    let options = Options::of(&verb);
    for flag in words.iter().filter(|word| word.starts_with("--")) {
        options.check_flag(place, flag);
    }
}

/// What a setting of a member is called: as a flag, as a variable.
fn forms(setting: &str) -> (String, String) {
    (format!("--{setting}"), format!("ARCHON_{}", setting.replace('-', "_").to_uppercase()))
}

/// A coordinator or node, as a manifest starts it.
pub(crate) struct Member {
    pub(crate) place: String,
    /// Verb and flags.
    pub(crate) words: Vec<String>,
    pub(crate) variables: Vec<(String, String)>,
}

impl Member {
    pub(crate) fn verb(&self) -> &str {
        &self.words[0]
    }

    /// The value of a setting, by flag or variable.
    pub(crate) fn value(&self, setting: &str) -> Option<&str> {
        let (flag, variable) = forms(setting);
        let by_flag = self.words.iter().find_map(|word| word.strip_prefix(&flag)?.strip_prefix('='));
        let by_variable = self.variables.iter().find(|(name, _)| *name == variable).map(|(_, value)| value.as_str());
        by_flag.or(by_variable)
    }

    #[track_caller]
    pub(crate) fn wants(&self, setting: &str) -> &str {
        self.value(setting).unwrap_or_else(|| panic!("{}: {setting} is missing", self.place))
    }

    /// Everything that it says is known, and everything that it must say is there.
    #[track_caller]
    pub(crate) fn check(&self) {
        let options = Options::of(&[self.verb()]);
        for word in &self.words[1..] {
            options.check_flag(&self.place, word);
        }
        for (variable, _) in &self.variables {
            options.check_variable(&self.place, variable);
        }
        let needed = match self.verb() {
            "coordinator" => ["id", "listen", "peers", "data-dir", "metrics-listen"],
            "node" => ["name", "listen", "coordinators", "advertise", "data-dir"],
            other => panic!("{}: {other} serves nothing", self.place),
        };
        for setting in needed {
            self.wants(setting);
        }
        assert!(self.wants("data-dir").starts_with("/var/lib/archon/"), "{}", self.place);
    }

    /// The port at which a setting listens.
    #[track_caller]
    pub(crate) fn port(&self, setting: &str) -> u16 {
        port(self.wants(setting))
    }
}

/// The port of `host:port`.
#[track_caller]
pub(crate) fn port(address: &str) -> u16 {
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    port.unwrap_or_else(|| panic!("{address} has no port"))
}

/// Each exit code of the contract.
pub(crate) fn exit_codes() -> BTreeSet<u8> {
    let text = help(&[]);
    let (_, codes) = text.split_once("Exit codes:").expect("the contract");
    let codes: BTreeSet<u8> = codes.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(codes.len() > 6, "{codes:?}");
    codes
}

/// How long a member's stop may take, as it says itself when it is told to.
pub(crate) fn stop_deadline(verb: &str) -> Duration {
    let directory = TempDir::new().expect("a directory");
    let address = free_addresses(1).remove(0);
    let (id, peers) = ("1", format!("1={address}"));
    let arguments = match verb {
        "coordinator" => ["coordinator", "--listen", &address, "--id", id, "--peers", &peers],
        _ => ["node", "--listen", &address, "--name", "athens", "--coordinators", "127.0.0.1:1"],
    };
    let member = Notified::start(EXE, verb, &arguments, directory.path());
    member.wait("STATUS=");
    let deadline = member.stop();
    assert!((10..60).contains(&deadline.as_secs()), "{verb}: {deadline:?}");
    deadline
}

/// `60s`, as systemd and Compose write it.
#[track_caller]
pub(crate) fn seconds(text: &str) -> Duration {
    let seconds = text.strip_suffix('s').and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or_else(|| panic!("{text} is no number of seconds")))
}

/// The documents of a YAML file as JSON, what is merged into a mapping (`<<`) in its place.
#[track_caller]
pub(crate) fn yaml(path: &str) -> Vec<serde_json::Value> {
    let documents = YamlLoader::load_from_str(&crate::source(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    documents.iter().map(json).collect()
}

fn json(yaml: &Yaml) -> serde_json::Value {
    match yaml {
        Yaml::Null => serde_json::Value::Null,
        Yaml::Boolean(value) => (*value).into(),
        Yaml::Integer(value) => (*value).into(),
        Yaml::Real(value) | Yaml::String(value) => value.as_str().into(),
        Yaml::Array(values) => values.iter().map(json).collect(),
        Yaml::Hash(values) => {
            let mut all = serde_json::Map::new();
            let key = |key: &Yaml| key.as_str().expect("a key that is text").to_owned();
            if let Some(serde_json::Value::Object(merged)) = values.get(&Yaml::String("<<".to_owned())).map(json) {
                all.extend(merged);
            }
            all.extend(
                values
                    .iter()
                    .filter(|(name, _)| name.as_str() != Some("<<"))
                    .map(|(name, value)| (key(name), json(value))),
            );
            all.into()
        }
        Yaml::Alias(_) | Yaml::BadValue => panic!("{yaml:?}"),
    }
}

/// The texts of a list.
#[track_caller]
pub(crate) fn texts(list: &serde_json::Value) -> Vec<String> {
    let list = list.as_array().unwrap_or_else(|| panic!("{list} is no list"));
    list.iter().map(|text| text.as_str().unwrap_or_else(|| panic!("{text} is no text")).to_owned()).collect()
}

/// A text.
#[track_caller]
pub(crate) fn text(value: &serde_json::Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

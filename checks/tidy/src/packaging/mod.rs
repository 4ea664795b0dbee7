//! Readers of the files in `packaging/`.

pub mod compose;
pub mod kubernetes;
pub mod units;

use serde_json::Value;
use std::time::Duration;
use yaml_rust2::{Yaml, YamlLoader};

/// Returns the name of a setting as a flag and as a variable.
fn forms(setting: &str) -> (String, String) {
    (format!("--{setting}"), format!("ARCHON_{}", setting.replace('-', "_").to_uppercase()))
}

/// A coordinator or node, as a manifest starts it.
#[derive(Debug)]
pub struct Member {
    /// File and service, for messages.
    pub place: String,
    /// Verb and flags.
    pub words: Vec<String>,
    /// Environment variables.
    pub variables: Vec<(String, String)>,
}

impl Member {
    /// Returns the verb: `coordinator` or `node`.
    #[must_use]
    pub fn verb(&self) -> &str {
        &self.words[0]
    }

    /// Returns the value of a setting, by flag or variable.
    #[must_use]
    pub fn value(&self, setting: &str) -> Option<&str> {
        let (flag, variable) = forms(setting);
        let by_flag = self.words.iter().find_map(|word| word.strip_prefix(&flag)?.strip_prefix('='));
        let by_variable = self.variables.iter().find(|(name, _)| *name == variable).map(|(_, value)| value.as_str());
        by_flag.or(by_variable)
    }

    /// Returns the value of a required setting.
    ///
    /// # Panics
    /// If it is missing.
    #[must_use]
    #[track_caller]
    pub fn wants(&self, setting: &str) -> &str {
        self.value(setting).unwrap_or_else(|| panic!("{}: {setting} is missing", self.place))
    }

    /// Checks the settings without which the member does not start.
    ///
    /// # Panics
    /// If one is missing, or the data directory is outside of the volume.
    #[track_caller]
    pub fn check_settings(&self) {
        let needed = match self.verb() {
            "coordinator" => ["id", "listen", "peers", "data-dir", "metrics-listen"],
            "node" => ["name", "listen", "coordinators", "advertise", "data-dir"],
            other => panic!("{}: {other} serves nothing", self.place),
        };
        for setting in needed {
            let _ = self.wants(setting);
        }
        assert!(self.wants("data-dir").starts_with("/var/lib/archon/"), "{}", self.place);
    }

    /// Returns the port of a listening setting.
    ///
    /// # Panics
    /// If the setting is missing or has no port.
    #[must_use]
    #[track_caller]
    pub fn port(&self, setting: &str) -> u16 {
        port(self.wants(setting))
    }
}

/// Returns the port of `host:port`.
///
/// # Panics
/// If there is none.
#[must_use]
#[track_caller]
pub fn port(address: &str) -> u16 {
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    port.unwrap_or_else(|| panic!("{address} has no port"))
}

/// Parses `60s`, as systemd and Compose write durations.
///
/// # Panics
/// If the text is no duration.
#[must_use]
#[track_caller]
pub fn seconds(text: &str) -> Duration {
    let seconds = text.strip_suffix('s').and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or_else(|| panic!("{text} is no number of seconds")))
}

/// Returns the documents of a YAML file as JSON, with merged mappings (`<<`) expanded.
///
/// # Panics
/// If it is no YAML.
#[must_use]
#[track_caller]
pub fn yaml(path: &str) -> Vec<Value> {
    let documents = YamlLoader::load_from_str(&crate::source(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    documents.iter().map(json).collect()
}

fn json(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::Null => Value::Null,
        Yaml::Boolean(value) => (*value).into(),
        Yaml::Integer(value) => (*value).into(),
        Yaml::Real(value) | Yaml::String(value) => value.as_str().into(),
        Yaml::Array(values) => values.iter().map(json).collect(),
        Yaml::Hash(values) => {
            let mut all = serde_json::Map::new();
            let key = |key: &Yaml| key.as_str().expect("a key that is text").to_owned();
            if let Some(Value::Object(merged)) = values.get(&Yaml::String("<<".to_owned())).map(json) {
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

/// Returns the texts of a list.
///
/// # Panics
/// If it is no list of texts.
#[must_use]
#[track_caller]
pub fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().unwrap_or_else(|| panic!("{list} is no list"));
    list.iter().map(|text| text.as_str().unwrap_or_else(|| panic!("{text} is no text")).to_owned()).collect()
}

/// Returns a text.
///
/// # Panics
/// If it is none.
#[must_use]
#[track_caller]
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

//! Compares documents about metrics with their definitions: the page, the alert rules and the dashboard.

use crate::EXE;
use archon_integration_tests::{Cluster, Options, http};
use archon_telemetry::{Definition, Kind};
use archon_testkit::skipped;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Environment variable: set to regenerate the page instead of comparing it.
const UPDATE: &str = "ARCHON_UPDATE_DOCS";
const MARK: &str = "<!-- What follows is generated; CONTRIBUTING.md says how. -->\n";
const ALERTS: &str = "docs/operate/monitoring/alerts.yaml";
const ALERTS_TEST: &str = "docs/operate/monitoring/alerts_test.yaml";
const DASHBOARD: &str = "docs/operate/monitoring/dashboard.json";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn source(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn of_nodes() -> Vec<&'static Definition> {
    archon_kvstore_node::metric_definitions().collect()
}

fn of_coordinators() -> Vec<&'static Definition> {
    archon_coordinator::metric_definitions().collect()
}

fn of_clients() -> Vec<&'static Definition> {
    archon_client::metrics::CLIENT_DEFINITIONS.iter().collect()
}

fn of_participants() -> Vec<&'static Definition> {
    archon_client::metrics::PARTICIPANT_DEFINITIONS.iter().collect()
}

fn of_agents() -> Vec<&'static Definition> {
    archon_agent::metric_definitions().collect()
}

/// Returns every metric by name, with its exporters.
fn all() -> BTreeMap<&'static str, (&'static Definition, Vec<&'static str>)> {
    let mut all: BTreeMap<_, (&Definition, Vec<&str>)> = BTreeMap::new();
    for (member, definitions) in [
        ("coordinator", of_coordinators()),
        ("node", of_nodes()),
        ("client", of_clients()),
        ("participant", of_participants()),
        ("agent", of_agents()),
    ] {
        for definition in definitions {
            let (known, members) = all.entry(definition.name).or_insert((definition, Vec::new()));
            assert_eq!(*known, definition, "one name means one thing, whoever tells it");
            members.push(member);
        }
    }
    all
}

#[test]
fn metric_definitions_follow_the_rules() {
    let mut wrong = Vec::new();
    for (name, (definition, members)) in all() {
        let mut fault = |holds: bool, what: &str| {
            if !holds {
                wrong.push(format!("{name}: {what}"));
            }
        };
        let snake = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        fault(members.len() == BTreeSet::from_iter(&members).len(), "a member tells it twice");
        fault(name.starts_with("archon_") && snake(name), "is no name of ours");
        fault(
            name.ends_with("_total") == (definition.kind == Kind::Counter),
            "counters, and they alone, end in _total",
        );
        fault(definition.kind != Kind::Histogram || name.ends_with("_seconds"), "durations end in _seconds");
        for unit in ["milliseconds", "microseconds", "_ms", "_us", "kilobytes", "_mb", "minutes"] {
            fault(!name.contains(unit), "units are seconds and bytes");
        }
        fault(!definition.help.is_empty() && !definition.help.ends_with('.'), "is not explained in a phrase");
        for label in definition.labels {
            fault(snake(label.name) && label.name != "le", "has a label that is no name");
            fault(!label.values.is_empty(), "has a label without values");
            fault(label.values.len() == BTreeSet::from_iter(label.values).len(), "has a value twice");
            fault(
                label.values.iter().all(|value| !value.is_empty() && !value.contains(['"', '\\', '\n'])),
                "has an odd value",
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(
        of_nodes().len() > 45 && of_coordinators().len() > 35,
        "{} and {}",
        of_nodes().len(),
        of_coordinators().len()
    );
}

/// Returns the generated part of `docs/reference/metrics.md`.
fn page() -> String {
    let mut out = String::new();
    let whose = |members: &[&str]| match members {
        ["coordinator"] => "Coordinators",
        ["node"] => "Nodes",
        ["client"] => "Clients",
        ["participant"] => "Participants",
        ["agent"] => "Agents",
        _ => "Both",
    };
    for heading in ["Both", "Nodes", "Coordinators", "Clients", "Participants", "Agents"] {
        let _ = write!(out, "\n## {heading}\n\n| metric | kind | labels | |\n|---|---|---|---|\n");
        for (name, (definition, _)) in all().iter().filter(|(_, (_, members))| whose(members) == heading) {
            let label = |label: &archon_telemetry::Label| match label.values {
                // Identifies the build.
                [_] => format!("`{}`", label.name),
                values => format!("`{}`: {}", label.name, values.join(", ")),
            };
            let labels: Vec<String> = definition.labels.iter().map(label).collect();
            let (kind, help) = (definition.kind.as_str(), definition.help);
            let _ = writeln!(out, "| `{name}` | {kind} | {} | {help} |", labels.join("; "));
        }
    }
    out
}

#[test]
fn the_page_matches_metric_definitions() {
    let path = root().join("docs/reference/metrics.md");
    let found = source("docs/reference/metrics.md");
    let (head, now) = found.split_once(MARK).expect("the mark in docs/reference/metrics.md");
    let wanted = page();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(path, format!("{head}{MARK}{wanted}")).expect("docs/reference/metrics.md can be written");
        return;
    }
    let differs = now.lines().zip(wanted.lines()).find(|(now, wanted)| now != wanted);
    assert!(
        now == wanted,
        "docs/reference/metrics.md is not what the definitions say ({differs:?}); if that is meant, write it anew: {UPDATE}=1 cargo test \
         -p archon-integration-tests --test operate monitoring::the_page, and tell of it in CHANGELOG.md"
    );
}

/// Returns the expressions of the alert rules; each is on a line of its own.
fn of_alerts() -> Vec<String> {
    let text = source(ALERTS);
    let found: Vec<String> =
        text.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).map(ToOwned::to_owned).collect();
    assert_eq!(found.len(), text.matches("- alert: ").count(), "each rule has its expression on one line");
    found
}

/// Returns the expressions of the dashboard's panels.
fn of_dashboard() -> Vec<String> {
    let dashboard: serde_json::Value = serde_json::from_str(&source(DASHBOARD)).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let mut found: Vec<String> =
        targets.map(|target| target["expr"].as_str().expect("an expression").to_owned()).collect();
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    found.extend(variables.iter().filter_map(|variable| variable["query"].as_str()).map(ToOwned::to_owned));
    found
}

/// A metric used in an expression.
struct MetricUse {
    name: String,
    /// Labels that it selects, each with its values.
    labels: Vec<(String, Vec<String>)>,
}

/// Returns the metrics used in an expression.
fn asked(expression: &str) -> Vec<MetricUse> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in expression.match_indices("archon_") {
        let end = expression[at..].find(|c| !part(c)).map_or(expression.len(), |length| at + length);
        let rest = &expression[end..];
        let selector =
            rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(selector, _)| selector);
        let labels = selector.split(',').filter_map(|label| {
            let (name, value) = label.split_once('=')?;
            let values = value.trim_start_matches('~').trim_matches('"').split('|').map(ToOwned::to_owned);
            Some((name.to_owned(), values.collect()))
        });
        found.push(MetricUse { name: expression[at..end].to_owned(), labels: labels.collect() });
    }
    found
}

/// Returns what an expression uses that no member exports.
fn unknown(expression: &str) -> Vec<String> {
    let all = all();
    let mut wrong = Vec::new();
    for MetricUse { name, labels } in asked(expression) {
        let of_histogram = ["_bucket", "_count", "_sum"].iter().find_map(|end| all.get(name.strip_suffix(end)?));
        let histogram = of_histogram.filter(|(definition, _)| definition.kind == Kind::Histogram);
        let Some((definition, _)) = histogram.or_else(|| all.get(name.as_str())) else {
            wrong.push(format!("{name} is told by nobody: {expression}"));
            continue;
        };
        for (label, values) in
            labels.into_iter().filter(|(label, _)| !["job", "instance", "le"].contains(&label.as_str()))
        {
            match definition.labels.iter().find(|defined| defined.name == label) {
                None => wrong.push(format!("{name} has no label {label}: {expression}")),
                Some(defined) => {
                    let odd = values.iter().filter(|value| !defined.values.contains(&value.as_str()));
                    wrong.extend(odd.map(|value| format!("{name}: {label} is never {value}: {expression}")));
                }
            }
        }
        // A counter is meaningful only as a rate, and a gauge has no rate.
        let rated = ["rate(", "increase("].iter().any(|function| expression.contains(&format!("{function}{name}")));
        if rated != (definition.kind != Kind::Gauge) {
            wrong.push(format!("{name} is a {}: {expression}", definition.kind.as_str()));
        }
    }
    wrong
}

#[test]
fn alerts_and_dashboard_use_only_exported_metrics() {
    let (alerts, dashboard) = (of_alerts(), of_dashboard());
    assert!(alerts.len() > 10 && dashboard.len() > 30, "{} and {}", alerts.len(), dashboard.len());
    let wrong: Vec<String> = alerts.iter().chain(&dashboard).flat_map(|expression| unknown(expression)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn expression_on_unknown_metric_is_rejected() {
    for wrong in [
        "sum(archon_raft_is_leading)",
        "archon_cluster_nodes{status=\"dead\"} > 0",
        "archon_cluster_nodes{state=\"failed\"} > 0",
        "rate(archon_raft_term[5m])",
        "archon_node_alarms_total > 0",
        "rate(archon_wal_syncs_total_bucket[5m])",
    ] {
        assert_eq!(unknown(wrong).len(), 1, "{wrong}");
    }
    assert!(unknown("sum(archon_cluster_nodes{job=~\"$job\",status=~\"failed|lost\"}) > 0").is_empty());
    assert!(unknown("histogram_quantile(0.99, sum by (le) (rate(archon_raft_commit_seconds_bucket[5m])))").is_empty());
}

/// Runs `promtool` with this standard input; returns its complaints as an error.
fn promtool(arguments: &[&str], directory: &Path, input: &str) -> Result<(), String> {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(directory);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("promtool reads");
    drop(stdin);
    let ran = child.wait_with_output().expect("promtool ends");
    let said = [String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr)].concat();
    if ran.status.success() { Ok(()) } else { Err(said) }
}

fn has_promtool() -> bool {
    Command::new("promtool").arg("--version").output().is_ok_and(|ran| ran.status.success())
}

#[test]
fn prometheus_accepts_alert_rules_and_they_fire() {
    if !has_promtool() {
        return skipped(
            "the alert rules are not checked by promtool, which is not installed (Debian's prometheus has it)",
        );
    }
    let directory = root().join("docs/operate/monitoring");
    let file = |path: &'static str| Path::new(path).file_name().and_then(|name| name.to_str()).expect("a name");
    promtool(&["check", "rules", file(ALERTS)], &directory, "").unwrap_or_else(|said| panic!("{said}"));
    promtool(&["test", "rules", file(ALERTS_TEST)], &directory, "").unwrap_or_else(|said| panic!("{said}"));
}

#[test]
fn prometheus_accepts_members_metrics() {
    if !has_promtool() {
        return skipped("metrics are not checked by promtool, which is not installed (Debian's prometheus has it)");
    }
    let cluster = Cluster::start(EXE, &Options { metrics: true, ..Options::default() });
    for member in ["coordinator-1", "coordinator-2", "coordinator-3", "athens"] {
        let told = http::get(cluster.metrics_address(member), "/metrics").expect("the member tells its metrics");
        promtool(&["check", "metrics"], &root(), &told.body).unwrap_or_else(|said| panic!("{member}: {said}"));
    }
    let fault = promtool(&["check", "metrics"], &root(), "# TYPE archon_cups counter\narchon_cups 1\n");
    assert!(fault.is_err_and(|said| said.contains("_total")), "it finds faults");
}

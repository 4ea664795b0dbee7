mod documented;
mod events;
mod reference;
mod remedies;
mod samples;

use super::*;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use std::ffi::OsString;
use std::time::Duration;

#[test]
fn definition_is_valid() {
    Cli::command().debug_assert();
}

/// Every verb with an action shows an example of its use.
#[test]
fn every_help_has_an_example() {
    fn walk(command: &mut clap::Command, path: &str) {
        let path = format!("{path} {}", command.get_name());
        let help = command.render_long_help().to_string();
        assert!(help.contains("Example"), "`{}` --help has no example", path.trim());
        for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help") {
            walk(sub, &path);
        }
    }
    walk(&mut Cli::command(), "");
}

/// A refusal names the refused command, not its call.
#[test]
fn every_command_named_in_a_refusal_exists() {
    for named in archon_security::known_commands() {
        let mut command = Cli::command();
        for word in named.split(' ') {
            let found = command.find_subcommand(word).cloned();
            command = found.unwrap_or_else(|| panic!("there is no `archon {named}`"));
        }
    }
}

#[test]
fn node_serves_and_lists() {
    let serve = Cli::try_parse_from(["archon", "node", "--name", "athens", "--coordinators", "127.0.0.1:1"]);
    assert!(matches!(serve.unwrap().verb, Verb::Node(NodeArgs { verb: None, .. })));
    let list = Cli::try_parse_from(["archon", "node", "list", "-o", "json", "--coordinators", "127.0.0.1:1"]);
    assert!(matches!(list.unwrap().verb, Verb::Node(NodeArgs { verb: Some(NodeVerb::List(_)), .. })));
}

/// A default filled in by clap would hide the value in the file, so the help names the default itself.
#[test]
fn help_of_a_coordinator_names_the_defaults() {
    let mut command = Cli::command();
    let coordinator = command.find_subcommand_mut("coordinator").unwrap();
    for setting in archon_types::Setting::ALL {
        let flag = coordinator.get_arguments().find(|arg| arg.get_id() == setting.as_str()).unwrap();
        let help = flag.get_help().unwrap().to_string();
        let default = match setting {
            archon_types::Setting::MinNodes => "the replication".to_owned(),
            archon_types::Setting::Replication => "3, or --min-nodes if that is less".to_owned(),
            other => other.default_value().to_string(),
        };
        assert!(help.ends_with(&format!("default: {default}")), "{setting}: {help}");
    }
}

#[test]
fn flag_without_effect_is_refused() {
    let read = |line: &[&str]| parse_line(line.iter().map(OsString::from));
    for flags in [&["--name", "athens"][..], &["--weight", "5"], &["--log", "debug"], &["--config", "f"]] {
        let error = read(&[&["archon", "node"], flags, &["list"]].concat()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ArgumentConflict);
        let text = error.to_string();
        assert!(text.contains(flags[0]) && text.contains("archon node list"), "{text}");
    }
    assert!(read(&["archon", "node", "--coordinators", "127.0.0.1:1", "-o", "json", "list"]).is_ok());
    assert!(read(&["archon", "--timeout", "1s", "node", "describe", "athens"]).is_ok());
    assert!(read(&["archon", "node", "--name", "athens", "--weight", "5"]).is_ok());
}

#[test]
fn table_named_twice_is_refused() {
    let read = |line: &[&str]| parse_line(line.iter().map(OsString::from));
    for line in [["archon", "kv", "--table", "a", "export", "b"], ["archon", "kv", "import", "b", "--table", "a"]] {
        let error = read(&line).unwrap_err();
        assert!(error.kind() == ErrorKind::ArgumentConflict && error.to_string().contains("twice"), "{error}");
        assert!(error.to_string().contains("Usage: archon kv "), "{error}");
    }
    assert!(read(&["archon", "kv", "export", "b"]).is_ok());
}

#[test]
fn options_are_accepted_before_and_after_the_verb() {
    for line in [
        ["archon", "--timeout", "500ms", "rebalance", "plan"],
        ["archon", "rebalance", "--timeout", "500ms", "plan"],
        ["archon", "rebalance", "plan", "--timeout", "500ms"],
    ] {
        assert_eq!(Cli::try_parse_from(line).unwrap().connection.timeout, Duration::from_millis(500));
    }
}

/// Folders with sources, in which messages name commands.
const SOURCES: [&str; 14] = [
    "backup/src",
    "cli/src",
    "client/src",
    "coordinator/console/src",
    "coordinator/core/src",
    "coordinator/src",
    "kvstore-node",
    "tools/local-cluster/src",
    "tools/load/src",
    "member/src",
    "proto",
    "base/security",
    "member/session/src",
    "base/telemetry/src",
];

/// Adds the texts between backticks that begin with `archon `, without comments; lines that a string continues are joined.
fn add_commands(folder: &std::path::Path, found: &mut Vec<(std::path::PathBuf, String)>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries.map(Result::unwrap) {
        let path = entry.path();
        let name = entry.file_name().into_string().unwrap();
        if path.is_dir() && !["tests", "benches", "target"].contains(&name.as_str()) {
            add_commands(&path, found);
        } else if name.ends_with(".rs") {
            let mut code = String::new();
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                let line = line.trim_start();
                match line.strip_suffix('\\') {
                    _ if line.starts_with("//") => {}
                    Some(begun) => code.push_str(begun),
                    None => code.extend([line, "\n"]),
                }
            }
            let commands = code.split("`archon ").skip(1).filter_map(|rest| rest.split_once('`'));
            let whole = commands.filter(|(command, _)| !command.contains(['"', '\n']));
            found.extend(whole.map(|(command, _)| (path.clone(), command.to_owned())));
        }
    }
}

/// A message that names a command names one that exists, with its options: `archon node remove {name}`.
#[test]
fn every_command_in_a_message_parses() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    SOURCES.iter().for_each(|folder| add_commands(&root.join(folder), &mut found));
    assert!(found.len() > 100, "only {} commands are found", found.len());
    let wrong: Vec<String> = found
        .into_iter()
        .filter_map(|(path, command)| Some(format!("{}: `archon {command}`: {}", path.display(), fault(&command)?)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the fault of a command. Values may be missing, or stand for others: `NAME`, `{name}`.
pub(super) fn fault(command: &str) -> Option<String> {
    if command.contains('…') {
        return None;
    }
    let mut words = vec!["archon".to_owned()];
    let mut known = Cli::command();
    for word in command.split_whitespace() {
        let is_open = word.contains('{');
        if is_open && known.has_subcommands() && !word.starts_with('-') {
            // Any of several verbs.
            return None;
        }
        known = known.find_subcommand(word).cloned().unwrap_or(known);
        words.push(if is_open { "1".to_owned() } else { word.to_owned() });
    }
    match Cli::try_parse_from(words).map_err(|error| error.kind()) {
        Ok(_)
        | Err(
            ErrorKind::ValueValidation
            | ErrorKind::InvalidValue
            | ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::DisplayHelp,
        ) => None,
        Err(kind) => Some(kind.to_string()),
    }
}

#[test]
fn wrong_commands_in_messages_are_found() {
    for right in ["node remove {name}", "status", "quorum replace {id} NEW", "node {verb} {name}"] {
        assert_eq!(fault(right), None, "{right}");
    }
    for wrong in ["node forget NAME", "node remove NAME --now", "tables list", "status now"] {
        assert!(fault(wrong).is_some(), "{wrong}");
    }
}

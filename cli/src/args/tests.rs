use super::*;

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
            archon_types::Setting::MinNodes => "as many as there are copies".to_owned(),
            archon_types::Setting::Replication => "3, or as many as --min-nodes if that is less".to_owned(),
            other => other.default_value().to_string(),
        };
        assert!(help.ends_with(&format!("otherwise {default}")), "{setting}: {help}");
    }
}

#[test]
fn flag_without_effect_is_refused() {
    let read = |line: &[&str]| parse(line.iter().map(OsString::from));
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
    let read = |line: &[&str]| parse(line.iter().map(OsString::from));
    for line in [["archon", "kv", "--table", "a", "export", "b"], ["archon", "kv", "import", "b", "--table", "a"]] {
        let error = read(&line).unwrap_err();
        assert!(error.kind() == ErrorKind::ArgumentConflict && error.to_string().contains("behind"), "{error}");
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

//! Target of the checks: from flags, variables, and the file of a coordinator or node.

use crate::args::{Connection, DoctorArgs};
use crate::doctor::subjects::MACHINE;
use crate::documents::{Finding, FindingCode};
use crate::serve::file::ConfigFile;
use crate::serve::settings::FilePlace;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Target of the checks.
pub(super) struct Target {
    /// Finding about the configuration file, if one was named.
    pub(super) configuration: Option<Finding>,
    /// Member of this machine, present or future, as `node/athens`, if known.
    pub(super) member: Option<String>,
    /// Data directory.
    pub(super) data_dir: Option<PathBuf>,
    /// Listen addresses, each with its flag.
    pub(super) listen: Vec<(&'static str, SocketAddr)>,
    /// Directories of credentials.
    pub(super) tls_dirs: Vec<PathBuf>,
    /// Connection to the cluster.
    pub(super) connection: Connection,
}

impl Target {
    /// Combines flags and file. An invalid file becomes a finding, and its values are ignored.
    pub(super) fn of(args: &DoctorArgs, connection: &Connection) -> Self {
        let read = |path: &PathBuf| FilePlace::read(&ConfigFile::read(path)?);
        let (configuration, found) = match args.config.as_ref().map(|path| (path.display().to_string(), read(path))) {
            None => (None, FilePlace::default()),
            Some((path, Ok(found))) => {
                let whose = found.member.as_deref().unwrap_or("a member without a name");
                let finding = Finding::ok(FindingCode::Configuration, &path, format!("readable, for {whose}"));
                (Some(finding), found)
            }
            Some((path, Err(failure))) => {
                let remedy = failure.remedy.unwrap_or_else(|| "correct the file".to_owned());
                let finding = Finding::error(FindingCode::Configuration, &path, failure.message, remedy);
                (Some(finding), FilePlace::default())
            }
        };
        Self { configuration, ..Self::drawn(args, connection, found) }
    }

    fn drawn(args: &DoctorArgs, connection: &Connection, found: FilePlace) -> Self {
        let mut listen: Vec<(&'static str, SocketAddr)> =
            args.listen.map(|address| ("listen", address)).into_iter().collect();
        listen.extend(found.listen.into_iter().filter(|(flag, _)| args.listen.is_none() || *flag != "listen"));
        let mut connection = connection.clone();
        if connection.coordinators.is_empty() {
            connection.coordinators = found.coordinators;
        }
        let mut tls_dirs: Vec<PathBuf> = found.tls_dir.iter().chain(&connection.tls_dir).cloned().collect();
        tls_dirs.dedup();
        // A user who checks the cluster mostly has separate credentials.
        connection.insecure |= found.insecure && connection.tls_dir.is_none();
        connection.tls_dir = connection.tls_dir.or(found.tls_dir);
        Self {
            configuration: None,
            member: found.member,
            data_dir: args.data_dir.clone().or(found.data_dir),
            listen,
            tls_dirs,
            connection,
        }
    }

    /// Returns the finding of a machine check without a target.
    pub(super) fn unnamed(code: FindingCode, what: &str, flag: &str) -> Finding {
        Finding::not_checked(code, MACHINE, format!("no {what} is named; give --{flag}, or --config FILE"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::Verdict;

    fn target(text: &str, args: DoctorArgs, coordinators: &[&str]) -> Target {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("archon.toml");
        std::fs::write(&file, text).unwrap();
        Target::of(&DoctorArgs { config: Some(file), ..args }, &Connection::to(coordinators))
    }

    const NOTHING: DoctorArgs = DoctorArgs { config: None, data_dir: None, listen: None };

    #[test]
    fn file_kind_is_detected_and_flags_override_it() {
        let node = "name = 'athens'\nlisten = '127.0.0.1:1'\nmetrics_listen = '127.0.0.1:2'\ndata_dir = '/d'\n\
                    coordinators = ['127.0.0.1:9']\n";
        let found = target(node, NOTHING, &[]);
        assert_eq!(found.member.as_deref(), Some("node/athens"));
        assert_eq!(
            found.listen.iter().map(|(flag, at)| format!("{flag} {}", at.port())).collect::<Vec<_>>(),
            ["listen 1", "metrics-listen 2"]
        );
        assert_eq!(found.connection.coordinators, ["127.0.0.1:9"]);
        let args = DoctorArgs { data_dir: Some("/e".into()), listen: Some("127.0.0.1:7".parse().unwrap()), ..NOTHING };
        let found = target(node, args, &["127.0.0.1:8"]);
        assert_eq!((found.data_dir, found.listen[0].1.port(), found.listen.len()), (Some("/e".into()), 7, 2));
        assert_eq!(found.connection.coordinators, ["127.0.0.1:8"]);

        let found = target("id = 2\npeers = ['1=127.0.0.1:1', '2=127.0.0.1:2']\npartitions = 9\n", NOTHING, &[]);
        assert_eq!(found.member.as_deref(), Some("coordinator/2"));
        assert_eq!(found.connection.coordinators, ["127.0.0.1:1", "127.0.0.1:2"]);
    }

    #[test]
    fn invalid_file_is_a_finding_and_does_not_stop_the_checks() {
        let found = target("name = 'athens'\nlisen = '127.0.0.1:1'\n", NOTHING, &[]);
        let finding = found.configuration.unwrap();
        assert_eq!(finding.verdict, Verdict::Error);
        assert!(finding.message.contains("line 2: unknown key `lisen`"), "{}", finding.message);
        assert_eq!(finding.remedy.as_deref(), Some("did you mean `listen`?"));
    }
}

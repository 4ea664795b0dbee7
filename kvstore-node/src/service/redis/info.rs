//! `INFO`, `CONFIG GET`, `HELLO` and `TIME`.

use super::refusal::{CommandResult, Refusal};
use super::session::Session;
use super::state::{LIMITS, RedisService};
use archon_resp::{KeyPattern, Reply, unknown_subcommand, wrong_arity};
use bytes::Bytes;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// The version of Redis with these commands, for clients that look at it.
pub(super) const REDIS_VERSION: &str = "7.2.0";

/// Most patterns of one `CONFIG GET`: comparing them takes time.
const PATTERNS_MAX: usize = 64;

/// Returns the reply to `HELLO`.
pub(super) fn hello(session: &Session) -> Reply {
    let text = |key: &str, value: &str| (Reply::bulk(key), Reply::bulk(value));
    let id = i64::try_from(session.id).unwrap_or(i64::MAX);
    Reply::Map(vec![
        text("server", "redis"),
        text("version", REDIS_VERSION),
        (Reply::bulk("proto"), Reply::Integer(session.version.number())),
        (Reply::bulk("id"), Reply::Integer(id)),
        text("mode", "cluster"),
        text("role", "master"),
        (Reply::bulk("modules"), Reply::Array(vec![])),
    ])
}

/// Returns the reply to `TIME`.
pub(super) fn time() -> Reply {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Reply::Array(vec![Reply::bulk(now.as_secs().to_string()), Reply::bulk(now.subsec_micros().to_string())])
}

/// Returns the reply to `INFO` for these sections; for all of them without one.
pub(super) fn info(service: &RedisService, sections: &[Bytes]) -> Reply {
    let shared = &service.kv.shared;
    let port = service.advertised.rsplit_once(':').map_or("0", |(_, port)| port);
    let uptime = service.started.elapsed().as_secs();
    let all: [(&str, Vec<(&str, String)>); 5] = [
        (
            "Server",
            vec![
                ("redis_version", REDIS_VERSION.to_owned()),
                ("redis_mode", "cluster".to_owned()),
                ("archon_version", env!("CARGO_PKG_VERSION").to_owned()),
                ("os", std::env::consts::OS.to_owned()),
                ("arch_bits", usize::BITS.to_string()),
                ("process_id", std::process::id().to_string()),
                ("tcp_port", port.to_owned()),
                ("uptime_in_seconds", uptime.to_string()),
                ("uptime_in_days", (uptime / 86_400).to_string()),
            ],
        ),
        ("Clients", vec![("connected_clients", shared.connection_limit.count().to_string())]),
        ("Persistence", vec![("loading", "0".to_owned()), ("aof_enabled", "1".to_owned())]),
        ("Replication", vec![("role", "master".to_owned()), ("connected_slaves", "0".to_owned())]),
        ("Cluster", vec![("cluster_enabled", "1".to_owned())]),
    ];
    let every = ["all", "everything", "default"];
    let shows = |name: &str| {
        sections.is_empty()
            || sections.iter().any(|section| {
                section.eq_ignore_ascii_case(name.as_bytes())
                    || every.iter().any(|word| section.eq_ignore_ascii_case(word.as_bytes()))
            })
    };
    let mut text = String::new();
    for (name, facts) in all.iter().filter(|(name, _)| shows(name)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let _ = write!(text, "# {name}\r\n");
        for (key, value) in facts {
            let _ = write!(text, "{key}:{value}\r\n");
        }
    }
    Reply::Text(text)
}

/// Executes `CONFIG` and its subcommands.
pub(super) fn config(request: &[Bytes]) -> CommandResult {
    let (subcommand, patterns) = (&request[1], &request[2..]);
    match (&subcommand.to_ascii_lowercase()[..], patterns) {
        (b"get", []) => Err(wrong_arity("config|get").into()),
        (b"get", patterns) => {
            if patterns.len() > PATTERNS_MAX {
                return Err(Refusal::new(format!("ERR CONFIG GET takes at most {PATTERNS_MAX} patterns")));
            }
            let patterns = patterns.iter().map(|pattern| KeyPattern::parse(&pattern.to_ascii_lowercase()));
            let patterns: Vec<KeyPattern> = patterns.collect::<Result<_, String>>()?;
            let settings = settings();
            let asked =
                settings.into_iter().filter(|(key, _)| patterns.iter().any(|pattern| pattern.matches(key.as_bytes())));
            Ok(Reply::Map(asked.map(|(key, value)| (Reply::bulk(key), Reply::bulk(value))).collect()))
        }
        (b"set" | b"rewrite" | b"resetstat", _) => {
            Err(Refusal::new("ERR settings cannot be changed by CONFIG; change the flags or the file of the node"))
        }
        _ => Err(unknown_subcommand("config", subcommand).into()),
    }
}

fn settings() -> [(&'static str, String); 10] {
    [
        ("appendfsync", "always".to_owned()),
        ("appendonly", "yes".to_owned()),
        ("cluster-enabled", "yes".to_owned()),
        ("cluster-require-full-coverage", "no".to_owned()),
        ("databases", "1".to_owned()),
        ("maxmemory", "0".to_owned()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("proto-max-bulk-len", LIMITS.bulk_bytes_max.to_string()),
        ("save", String::new()),
        ("timeout", "0".to_owned()),
    ]
}

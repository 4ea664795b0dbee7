//! The libraries under test, and the commands that start their scripts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A client library of Redis Cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Library {
    /// redis-py.
    RedisPy,
    /// ioredis.
    IoRedis,
    /// node-redis, the package `redis` of npm.
    NodeRedis,
    /// valkey-glide, in Python.
    ValkeyGlide,
    /// redis-rs, the crate `redis`.
    RedisRs,
    /// redis-cli, which is built on hiredis: one process per request.
    RedisCli,
}

/// Files of a client's certificate: the authority, the certificate and its key.
pub type Credentials = [PathBuf; 3];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the directory of the installed libraries.
fn installed() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join("redis-clients")
}

/// Returns a program that was built with this one, which may be a test.
fn beside(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    own.ancestors().skip(1).take(2).map(|directory| directory.join(name)).find(|program| program.exists())
}

impl Library {
    /// Returns the name of its package, for messages.
    const fn name(self) -> &'static str {
        match self {
            Self::RedisPy => "redis-py",
            Self::IoRedis => "ioredis",
            Self::NodeRedis => "node-redis",
            Self::ValkeyGlide => "valkey-glide",
            Self::RedisRs => "redis-rs",
            Self::RedisCli => "redis-cli",
        }
    }

    /// Returns true if its script can send each write once, as histories require: repeated ones count twice.
    pub const fn sends_once(self) -> bool {
        matches!(self, Self::RedisPy)
    }

    /// Returns true if it can read from replicas. valkey-glide keeps the replicas of the first range of a leader, which has none.
    pub const fn reads_replicas(self) -> bool {
        !matches!(self, Self::RedisCli | Self::ValkeyGlide)
    }

    /// Returns the command that starts its script; `None`, with a message, if this machine does not have the library. Then
    /// tests are left out, also where others may not be skipped: libraries come from other registries than crates.
    pub fn command(self) -> Option<Command> {
        let script = |name: &str| root().join("integration-tests/redis-clients").join(name);
        let (there, mut command) = match self {
            Self::RedisRs => match beside("redis-rs-driver") {
                Some(program) => (true, Command::new(program)),
                None => (false, Command::new("")),
            },
            Self::RedisCli => {
                let known = Command::new("redis-cli").arg("--version").stdout(Stdio::null()).status();
                let mut command = Command::new("python3");
                command.arg(script("redis_cli.py"));
                (known.is_ok_and(|status| status.success()), command)
            }
            Self::RedisPy | Self::ValkeyGlide => {
                let mut command = Command::new(installed().join("venv/bin/python"));
                command.arg(script(if self == Self::RedisPy { "redis_py.py" } else { "valkey_glide.py" }));
                (installed().join(self.name()).exists(), command)
            }
            Self::IoRedis | Self::NodeRedis => {
                let mut command = Command::new("node");
                command.arg(script(if self == Self::IoRedis { "ioredis.js" } else { "node_redis.js" }));
                (installed().join(self.name()).exists(), command)
            }
        };
        if !there {
            println!("left out: {} is not there; .ci/run and .ci/nightly install the libraries", self.name());
            return None;
        }
        command.env("NODE_PATH", installed().join("node_modules")).env("PYTHONDONTWRITEBYTECODE", "1");
        Some(command)
    }
}

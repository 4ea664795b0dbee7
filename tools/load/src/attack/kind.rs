//! Kinds of greedy clients.

use std::str::FromStr;

/// Kind of greedy clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attack {
    /// Four streams repeatedly send messages of 4,096 scans each.
    Scans,
    /// Ten streams read large values and write large ones, read no answers and send keepalives.
    SlowReaders,
    /// Twenty streams send all but the end of a message, and then a byte at times.
    HalfMessages,
    /// Connections are opened as fast as they are accepted, and stay silent.
    Connections,
    /// Four streams write, each operation under a new client id.
    NewClients,
    /// Eight clients of the Redis listener send half requests, wrong lengths, a million arguments, nested lists, endless
    /// lines and commands without arguments, or read no replies. They need a listener without TLS.
    Redis,
}

impl Attack {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Scans, Self::SlowReaders, Self::HalfMessages, Self::Connections, Self::NewClients, Self::Redis];

    /// Returns its name for users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scans => "scans",
            Self::SlowReaders => "slow-readers",
            Self::HalfMessages => "half-messages",
            Self::Connections => "connections",
            Self::NewClients => "new-clients",
            Self::Redis => "redis",
        }
    }
}

impl FromStr for Attack {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|attack| attack.name() == text);
        found.ok_or_else(|| format!("{text:?} is not an attack; use {}", Self::ALL.map(Self::name).join(", ")))
    }
}

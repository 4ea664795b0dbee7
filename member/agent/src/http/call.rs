//! Requests by their paths.

/// A request by its path.
#[derive(Debug)]
pub(super) enum Call<'a> {
    Events,
    Heartbeat,
    Answers,
    Owned(&'a str),
    Where(&'a str),
    Owners,
    WatchOwners,
    Status,
    Metrics,
    Alive,
    Ready,
}

impl Call<'_> {
    /// Returns the name for refusals, without arguments of the caller.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Heartbeat => "heartbeat",
            Self::Answers => "answers",
            Self::Owned(_) => "owned",
            Self::Where(_) => "where",
            Self::Owners => "owners",
            Self::WatchOwners => "owners/watch",
            Self::Status => "status",
            Self::Metrics => "metrics",
            Self::Alive => "livez",
            Self::Ready => "readyz",
        }
    }
}

/// Returns the method and the request of a path.
pub(super) fn call_of(path: &str) -> Option<(&'static str, Call<'_>)> {
    let Some(call) = path.strip_prefix("/v1/") else {
        return match path {
            "/metrics" => Some(("GET", Call::Metrics)),
            "/livez" => Some(("GET", Call::Alive)),
            "/readyz" => Some(("GET", Call::Ready)),
            _ => None,
        };
    };
    let (name, argument) = call.split_once('/').map_or((call, None), |(name, argument)| (name, Some(argument)));
    match (name, argument) {
        ("events", None) => Some(("GET", Call::Events)),
        ("heartbeat", None) => Some(("POST", Call::Heartbeat)),
        ("answers", None) => Some(("POST", Call::Answers)),
        ("owned", Some(partition)) => Some(("GET", Call::Owned(partition))),
        ("where", Some(key)) => Some(("GET", Call::Where(key))),
        ("owners", None) => Some(("GET", Call::Owners)),
        ("owners", Some("watch")) => Some(("GET", Call::WatchOwners)),
        ("status", None) => Some(("GET", Call::Status)),
        _ => None,
    }
}

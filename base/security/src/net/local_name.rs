//! Hosts of HTTP requests that lead to a machine without a foreign name.

use std::net::IpAddr;

/// Returns whether the host of a request, with or without a port, is an IP address or `localhost`.
///
/// With DNS rebinding, a page of a foreign site reaches a server of this machine by a name of that site. A server that
/// accepts only these hosts is no part of a foreign origin.
#[must_use]
pub fn is_local_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_localhost_are_local_names() {
        for host in ["127.0.0.1:7700", "10.0.0.7", "localhost:7700", "LOCALHOST", "[::1]:7700", "[::1]"] {
            assert!(is_local_name(host), "{host}");
        }
        for host in ["", ":1", "rebound.example:7700", "127.0.0.1.rebound.example", "localhost.rebound.example:1"] {
            assert!(!is_local_name(host), "{host}");
        }
    }
}

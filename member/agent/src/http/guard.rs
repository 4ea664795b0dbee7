//! Checks of the origin of requests. A browser on this machine sends requests for any page that it shows; such a page
//! must not drive the agent.

use crate::protocol::{ErrorBody, ErrorKind};
use archon_security::is_local_name;
use hyper::HeaderMap;
use hyper::header::{HOST, ORIGIN};

/// Rejects requests that a web page may have caused.
///
/// # Errors
/// The failed check.
pub(super) fn check_origin(headers: &HeaderMap, is_plaintext: bool) -> Result<(), ErrorBody> {
    let refused = |why: String| Err(ErrorBody::new(ErrorKind::Forbidden, why));
    if headers.contains_key(ORIGIN) || headers.contains_key("sec-fetch-site") {
        return refused("the agent serves programs, not web pages".to_owned());
    }
    if !is_plaintext {
        return Ok(());
    }
    // With DNS rebinding, a name of a foreign site leads to this address. With TLS, the certificate names the server.
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if is_local_name(host) {
        return Ok(());
    }
    refused(format!("the host {host:?} is not of this machine; call the agent by its IP address or as localhost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(headers: &[(&'static str, &str)], is_plaintext: bool) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        check_origin(&map, is_plaintext).is_ok()
    }

    #[test]
    fn foreign_hosts_and_web_pages_are_refused() {
        for host in ["127.0.0.1:7700", "localhost:7700", "[::1]:7700", "LOCALHOST"] {
            assert!(checked(&[("host", host)], true), "{host}");
            assert!(!checked(&[("host", host), ("origin", "http://127.0.0.1:7700")], true));
            assert!(!checked(&[("host", host), ("sec-fetch-site", "cross-site")], true));
        }
        for host in ["rebound.example:7700", "127.0.0.1.rebound.example", ""] {
            assert!(!checked(&[("host", host)], true), "{host}");
        }
        assert!(!checked(&[], true));
        assert!(checked(&[], false), "a socket has no host, and TLS checks it");
        assert!(!checked(&[("origin", "null")], false));
    }
}

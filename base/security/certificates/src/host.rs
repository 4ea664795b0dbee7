//! Hosts of servers, as named in certificates.

use archon_security::Certificate;
use rustls::pki_types::ServerName;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use thiserror::Error;

/// A DNS name or address of a server, without a port: a certificate covers all ports.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Host {
    /// A DNS name.
    Name(String),
    /// An IP address.
    Address(IpAddr),
}

/// A text that is not a host.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{text:?} is not a host: {why}")]
pub struct HostError {
    /// The text.
    pub text: String,
    /// The reason.
    pub why: String,
}

impl FromStr for Host {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        let failed = |why: String| HostError { text: text.to_owned(), why };
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse() {
            return Ok(Self::Address(address));
        }
        if let Some(host) = without_port(text) {
            return Err(failed(format!("a certificate is for every port of its host, so leave the port out: {host}")));
        }
        if text.contains('*') {
            return Err(failed("a certificate names each host, and no pattern".to_owned()));
        }
        // The same parser reads dialled addresses, so every certified name can be dialled.
        match ServerName::try_from(text) {
            Ok(ServerName::DnsName(name)) if !text.ends_with('.') => Ok(Self::Name(name.as_ref().to_owned())),
            _ => Err(failed("write a name or an IP address, as in node-1.example.org or 10.0.0.7".to_owned())),
        }
    }
}

/// Returns the host of `host:port`.
fn without_port(text: &str) -> Option<String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address.ip().to_string());
    }
    let (host, port) = text.rsplit_once(':')?;
    (!host.is_empty() && !host.contains(':') && port.parse::<u16>().is_ok()).then(|| host.to_owned())
}

impl fmt::Display for Host {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => to.write_str(name),
            Self::Address(address) => write!(to, "{address}"),
        }
    }
}

impl Host {
    /// Returns the hosts that a certificate names.
    ///
    /// # Errors
    /// A name is not a host, such as a pattern.
    pub fn of(certificate: &Certificate) -> Result<Vec<Self>, HostError> {
        certificate.hosts.iter().map(|host| host.parse()).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn hosts_are_names_or_addresses() {
        for (text, said) in [
            ("athens", "athens"),
            ("c1.example.org", "c1.example.org"),
            ("coordinator_1.archon", "coordinator_1.archon"),
            ("10.0.0.7", "10.0.0.7"),
            ("::1", "::1"),
            ("[2001:db8::7]", "2001:db8::7"),
        ] {
            let host: Host = text.parse().unwrap();
            assert_eq!(host.to_string(), said);
            assert_eq!(matches!(host, Host::Address(_)), said.parse::<IpAddr>().is_ok(), "{text}");
        }
    }

    #[test]
    fn invalid_host_error_suggests_the_correct_form() {
        for (text, why) in [
            ("athens:7201", "leave the port out: athens"),
            ("10.0.0.7:7201", "leave the port out: 10.0.0.7"),
            ("[::1]:7201", "leave the port out: ::1"),
            ("*.example.org", "no pattern"),
            ("", "node-1.example.org or 10.0.0.7"),
            ("a b", "node-1.example.org"),
            ("https://athens", "node-1.example.org"),
            ("athens.", "node-1.example.org"),
            ("10.0.0.300", "node-1.example.org"),
            ("-athens", "node-1.example.org"),
            ("athens\u{e9}", "node-1.example.org"),
        ] {
            let error = text.parse::<Host>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(&format!("{text:?}")), "{text:?}: {error}");
        }
    }
}

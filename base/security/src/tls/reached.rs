//! Addresses at which a process is reached, compared with the hosts in its certificate.

use crate::tls::credentials::Credentials;

/// An address that others connect to and that a certificate does not name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UnnamedAddress {
    address: String,
    /// The hosts that the certificate names.
    hosts: Vec<String>,
}

impl UnnamedAddress {
    /// Describes the mismatch and its remedy. `other` phrases how the process advertises an address that the certificate does name;
    /// without it only a new certificate helps.
    pub(crate) fn message(&self, other: Option<&dyn Fn(&str) -> String>) -> String {
        let Self { address, hosts } = self;
        let named = if hosts.is_empty() { "no host".to_owned() } else { format!("only {}", hosts.join(", ")) };
        let issue = format!("issue it again with --host {}", host_of(address));
        // A pattern is no address.
        let one = hosts.iter().find(|host| !host.contains('*'));
        let port = address.rsplit_once(':').map_or("", |(_, port)| port);
        let one = one.map(|one| if one.contains(':') { format!("[{one}]:{port}") } else { format!("{one}:{port}") });
        match other.zip(one) {
            Some((other, one)) => {
                format!("others connect to {address}, and the certificate names {named}: {}, or {issue}", other(&one))
            }
            None => format!("others connect to {address}, and the certificate names {named}; {issue}"),
        }
    }
}

impl Credentials {
    /// Rejects an address that the certificate does not name: clients that connect there would refuse this process.
    pub(crate) fn check_reached(&self, address: &str) -> Result<(), UnnamedAddress> {
        match self.names(host_of(address)) {
            true => Ok(()),
            false => Err(UnnamedAddress { address: address.to_owned(), hosts: self.certificate.hosts.clone() }),
        }
    }
}

/// Returns the host of `host:port`, without the brackets of IPv6.
pub(crate) fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_stand_before_their_ports() {
        for (address, host) in
            [("127.0.0.1:7101", "127.0.0.1"), ("[::1]:7101", "::1"), ("c1.example:7101", "c1.example")]
        {
            assert_eq!(host_of(address), host);
        }
    }
}

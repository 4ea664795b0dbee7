//! Rule for plaintext: only within this machine, unless the operator declared the network as trusted. The rule applies
//! equally to configured, advertised and learned addresses.

use crate::error::{ErrorDetail, ErrorKind};
use std::net::{IpAddr, SocketAddr};

/// Returns true if an address, `host:port` or a host alone, is a loopback address, unreachable from other machines.
pub fn is_loopback(address: &str) -> bool {
    if let Ok(address) = address.parse::<SocketAddr>() {
        return address.ip().is_loopback();
    }
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Rejects an address beyond this machine, unless `insecure` is set.
///
/// # Errors
/// [`ErrorKind::Refused`], naming the address and the flag that allows it.
pub fn check_plaintext(address: &str, insecure: bool) -> Result<(), ErrorDetail> {
    if insecure || is_loopback(address) {
        return Ok(());
    }
    let message = format!(
        "{address} is no loopback address, and traffic is plaintext: anybody on the way could read and change it; name credentials by \
         --tls-dir, or say --insecure on a network that you trust"
    );
    Err(ErrorDetail::new(ErrorKind::Refused, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plaintext_stays_on_this_machine_unless_allowed() {
        for here in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1", "127.0.0.1"] {
            assert!(check_plaintext(here, false).is_ok(), "{here}");
        }
        for beyond in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1", "db.example.org:1", "127.0.0.1.evil.org:1", "", ":1"] {
            let refused = check_plaintext(beyond, false).unwrap_err();
            assert!(refused.message.contains("--insecure") && refused.message.contains("--tls-dir"), "{beyond}");
            assert!(!refused.message.contains("this machine"), "it may be an address of this machine: {beyond}");
            assert!(check_plaintext(beyond, true).is_ok(), "{beyond}");
        }
    }
}

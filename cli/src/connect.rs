//! Connection of a command to the cluster, from its options.

use crate::args::Connection;
use crate::exit::Failure;
use crate::output::talk;
use crate::serve::{allowed, transport as transport_of};
use archon_client::{Admin, Client, Transport};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Returns the transport to the cluster.
///
/// # Errors
/// Unusable credentials, or both TLS and plaintext.
pub(crate) fn transport(connection: &Connection) -> Result<Transport, Failure> {
    transport_of(connection.insecure, connection.tls_dir.as_deref())
}

/// Returns a handle for administration, without sending anything.
///
/// # Errors
/// No address given, or one beyond this machine without TLS or `--insecure`; unusable credentials.
pub(crate) fn admin(connection: &Connection) -> Result<Admin, Failure> {
    let transport = transport(connection)?;
    Ok(Admin::with_transport(endpoints(connection, &transport)?, connection.timeout, transport)?)
}

/// Returns the same handle, which reports once on stderr that no coordinator answers and that it keeps trying.
pub(crate) fn with_notice(admin: &Admin) -> Admin {
    let reported = AtomicBool::new(false);
    admin.on_unanswered(move |detail, left| {
        let seconds = left.as_secs();
        if seconds > 0 && !reported.swap(true, Ordering::Relaxed) {
            talk(&format!("no coordinator answers ({}); trying for {seconds} s more", detail.message));
        }
    })
}

/// Returns a handle that asks the leading coordinator first. Any coordinator serves the partition table from its
/// applied state, which suffices for clients because owners correct them; a person who has just seen a move end must
/// not see the table of a coordinator that lags behind.
///
/// # Errors
/// Any failure to find the leader within `timeout`.
pub(crate) async fn leading(admin: &Admin, timeout: Duration) -> Result<Admin, Failure> {
    let status = admin.status().await?;
    let leader = status.coordinators.into_iter().find(|coordinator| Some(coordinator.id) == status.leader_id);
    match leader {
        Some(leader) => Ok(admin.at_endpoint(leader.address, timeout)?),
        None => Ok(admin.clone()),
    }
}

/// Returns a handle for keys; fetches the partition table. With `via` only the node at that address is asked.
///
/// # Errors
/// As [`admin`], and errors of the cluster.
pub(crate) async fn client(connection: &Connection, table: &str, via: Option<&str>) -> Result<Client, Failure> {
    let transport = transport(connection)?;
    let builder = match via {
        Some(node) => {
            allowed("via", node, &transport)?;
            Client::builder([node]).via_endpoints()
        }
        None => Client::builder(endpoints(connection, &transport)?),
    };
    let builder = builder.timeout(connection.timeout).table(table).transport(transport);
    Ok(builder.build().await?)
}

/// Returns a builder of handles for keys, of any table.
///
/// # Errors
/// As [`admin`].
pub(crate) fn builder(connection: &Connection) -> Result<archon_client::ClientBuilder, Failure> {
    let transport = transport(connection)?;
    let builder = Client::builder(endpoints(connection, &transport)?);
    Ok(builder.timeout(connection.timeout).transport(transport))
}

/// Returns the coordinators' addresses.
///
/// # Errors
/// None is given, or one beyond this machine without TLS or `--insecure`.
pub(crate) fn endpoints(connection: &Connection, transport: &Transport) -> Result<Vec<String>, Failure> {
    if connection.coordinators.is_empty() {
        return Err(Failure::usage(
            "no coordinator is named",
            "give --coordinators 127.0.0.1:7101 or set ARCHON_COORDINATORS; `archon demo` starts a cluster for trying",
        ));
    }
    for address in &connection.coordinators {
        allowed("coordinators", address, transport)?;
    }
    Ok(connection.coordinators.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn no_address_and_plaintext_abroad_are_usage_errors() {
        let nobody = endpoints(&Connection::to(&[]), &Transport::default()).unwrap_err();
        assert!(nobody.exit == Exit::Usage && nobody.to_string().contains("ARCHON_COORDINATORS"), "{nobody}");
        let abroad = endpoints(&Connection::to(&["127.0.0.1:1", "10.0.0.1:1"]), &Transport::default()).unwrap_err();
        assert!(abroad.exit == Exit::Usage && abroad.message.contains("10.0.0.1:1"), "{abroad}");
    }
}

//! Temporary local cluster for one measurement.

use crate::args::{Connection, LocalArgs};
use crate::exit::Failure;
use crate::output::Output;
use archon_client::Role;
use archon_local_cluster::{Cluster, Layout, SMALL, YOU};

/// Starts three coordinators and three nodes, if requested, and waits until every partition has all its copies.
///
/// # Errors
/// If the cluster does not start.
pub(super) async fn start(args: &LocalArgs, output: &Output) -> Result<Option<Cluster>, Failure> {
    start_with(args, &[], output).await
}

/// Does the same with further arguments of the nodes.
///
/// # Errors
/// As [`start`].
pub(super) async fn start_with(
    args: &LocalArgs,
    node_arguments: &[&str],
    output: &Output,
) -> Result<Option<Cluster>, Failure> {
    if !args.local {
        return Ok(None);
    }
    let layout =
        Layout { partitions: args.partitions, replication: args.replication, failover: args.failover, ..SMALL };
    let mut cluster = Cluster::new(crate::own_program()?, layout, args.keep)?;
    cluster.tell_nodes(node_arguments);
    if let Some(engine) = args.engine {
        cluster.tell_nodes(&["--engine", engine.name()]);
    }
    if let Some(rate) = args.copy_bytes_per_second {
        cluster.tell_nodes(&["--copy-bytes-per-second", &rate.to_string()]);
    }
    if args.tls {
        cluster.use_tls()?;
    }
    output.talk(format!("starting a cluster of its own under {}", cluster.directory().display()));
    cluster.start_all().await?;
    Ok(Some(cluster))
}

/// Returns the options by which other verbs reach the local cluster; without one, the user's options.
///
/// # Errors
/// If the certificate for that cannot be created.
pub(super) fn connection(cluster: Option<&Cluster>, connection: &Connection) -> Result<Connection, Failure> {
    Ok(match cluster {
        Some(cluster) => Connection {
            coordinators: cluster.endpoints(),
            // An administrator may read and write keys as well.
            tls_dir: cluster.credentials(Role::Admin, YOU)?,
            ..connection.clone()
        },
        None => connection.clone(),
    })
}

//! File with the owners of a table, kept up to date for proxies: a response of Envoy's endpoint discovery (EDS) in JSON.

use crate::protocol::TableOwners;
use crate::routes::Routes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// Pause after each write: changes meanwhile are written together.
const PAUSE: Duration = Duration::from_millis(100);
/// Pause after a failure.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// A file to keep up to date.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapFile {
    /// Table with the owners.
    pub table: String,
    /// Path of the file; its name ends with `.json`.
    pub path: PathBuf,
}

/// Keeps a file up to date until it is dropped. While the coordinators do not answer, the file stays as it is.
pub(crate) async fn keep(routes: &Routes, file: &MapFile) {
    let mut warned = false;
    loop {
        match follow(routes, file, &mut warned).await {
            Ok(()) => tracing::warn!(table = file.table, "the table was dropped; its map is not updated"),
            Err(why) if warned => tracing::debug!(path = %file.path.display(), why, "the map is not written"),
            Err(why) => {
                tracing::warn!(path = %file.path.display(), why, "the map is not written; trying again");
                warned = true;
            }
        }
        sleep(RETRY_EVERY).await;
    }
}

/// Writes the file after each change, until the table is dropped.
async fn follow(routes: &Routes, file: &MapFile, warned: &mut bool) -> Result<(), String> {
    let mut watch = routes.watch(&file.table).await.map_err(|error| error.message)?;
    loop {
        // The former file stays until all owners are known.
        let owners = watch.read_all().map_err(|error| error.to_string())?;
        let EndpointMap { document, skipped } = EndpointMap::of(&owners);
        // Heartbeats of the service do not wait for the disk.
        let path = file.path.clone();
        let written =
            spawn_blocking(move || write(&path, &document)).await.unwrap_or_else(|end| Err(io::Error::other(end)));
        written.map_err(|error| format!("{}: {error}", file.path.display()))?;
        *warned = false;
        for address in skipped {
            tracing::warn!(
                table = file.table,
                address,
                "the map has no endpoint for this address: Envoy resolves no names in EDS; give --address as IP:PORT"
            );
        }
        sleep(PAUSE).await;
        if !watch.changed().await {
            return Ok(());
        }
    }
}

/// Endpoints of a table's owners.
#[derive(Debug)]
struct EndpointMap {
    document: Value,
    /// Addresses that are no IP address and port.
    skipped: Vec<String>,
}

impl EndpointMap {
    /// Groups the partitions by the address of their owner. An owner that does not serve a partition yet is no endpoint
    /// of it.
    fn of(owners: &TableOwners) -> Self {
        let mut partitions: BTreeMap<&str, (&str, Vec<String>)> = BTreeMap::new();
        for row in &owners.partitions {
            if let Some(owner) = row.owner.as_ref().filter(|owner| owner.serves) {
                let (_, numbers) = partitions.entry(&owner.address).or_insert_with(|| (&owner.participant, Vec::new()));
                numbers.push(row.partition.to_string());
            }
        }
        let (mut endpoints, mut skipped) = (Vec::new(), Vec::new());
        for (address, (participant, numbers)) in partitions {
            let Ok(socket) = address.parse::<SocketAddr>() else {
                skipped.push(address.to_owned());
                continue;
            };
            endpoints.push(json!({
                "endpoint": {
                    "hostname": participant,
                    "address": {"socket_address": {"address": socket.ip().to_string(), "port_value": socket.port()}},
                },
                "metadata": {"filter_metadata": {"envoy.lb": {"partition": numbers}}},
            }));
        }
        let document = json!({
            "version_info": format!("{}-{}", owners.table_id, owners.version),
            "resources": [{
                "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
                "cluster_name": owners.table,
                "endpoints": [{"lb_endpoints": endpoints}],
            }],
        });
        Self { document, skipped }
    }
}

/// Replaces a file by renaming: a reader finds the former or the new content as a whole, and Envoy takes the rename for
/// the change.
fn write(path: &Path, document: &Value) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".archon-map-").tempfile_in(parent)?;
    file.write_all(format!("{document:#}\n").as_bytes())?;
    // The proxy is another user as a rule; owners of partitions are no secret on this machine.
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    // A proxy that starts after a power cut finds no empty file.
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{OwnerAddress, PartitionOwner};

    fn owned(partition: u32, address: &str, serves: bool) -> PartitionOwner {
        let owner = OwnerAddress { participant: "w1".to_owned(), address: address.to_owned(), epoch: 9, serves };
        PartitionOwner { partition, owner: Some(owner) }
    }

    fn owners(partitions: Vec<PartitionOwner>) -> TableOwners {
        TableOwners { table: "jobs".to_owned(), table_id: 2, version: 17, complete: true, partitions }
    }

    #[test]
    fn endpoints_list_the_partitions_that_they_serve() {
        let partitions = vec![
            owned(0, "10.0.0.7:8080", true),
            owned(1, "10.0.0.8:8080", true),
            owned(2, "10.0.0.7:8080", true),
            owned(3, "10.0.0.8:8080", false),
            PartitionOwner { partition: 4, owner: None },
            owned(5, "w9.example.org:8080", true),
            owned(6, "[2001:db8::1]:80", true),
        ];
        let map = EndpointMap::of(&owners(partitions));
        assert_eq!(map.skipped, ["w9.example.org:8080"]);
        assert_eq!(map.document["version_info"], "2-17");
        let resource = &map.document["resources"][0];
        assert_eq!(resource["cluster_name"], "jobs");
        let endpoints = resource["endpoints"][0]["lb_endpoints"].as_array().unwrap();
        let listed: Vec<_> = endpoints
            .iter()
            .map(|one| {
                let socket = &one["endpoint"]["address"]["socket_address"];
                let partitions = one["metadata"]["filter_metadata"]["envoy.lb"]["partition"].to_string();
                (socket["address"].as_str().unwrap(), socket["port_value"].as_u64().unwrap(), partitions)
            })
            .collect();
        let listed: Vec<_> = listed.iter().map(|(ip, port, numbers)| (*ip, *port, numbers.as_str())).collect();
        let expected =
            [("10.0.0.7", 8080, r#"["0","2"]"#), ("10.0.0.8", 8080, r#"["1"]"#), ("2001:db8::1", 80, r#"["6"]"#)];
        assert_eq!(listed, expected);
    }

    #[test]
    fn file_is_replaced_as_a_whole_and_others_may_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("jobs.json");
        for version in ["1", "2"] {
            write(&path, &json!({"version_info": version})).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["version_info"], version);
        }
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file stays");
        assert!(write(&directory.path().join("no/jobs.json"), &json!({})).is_err());
    }
}

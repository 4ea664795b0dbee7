//! Response of Envoy's endpoint discovery (EDS) in JSON.

use super::rendered_map::RenderedMap;
use crate::protocol::TableOwners;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Groups the partitions by the address of their owner. An owner that does not serve a partition yet is no endpoint of it.
pub(super) fn render(owners: &TableOwners) -> RenderedMap {
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
    RenderedMap { text: format!("{document:#}\n"), skipped }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map_file::rendered_map::fixtures::owners;
    use serde_json::Value;

    #[test]
    fn endpoints_list_the_partitions_that_they_serve() {
        let map = render(&owners());
        let document: Value = serde_json::from_str(&map.text).unwrap();
        assert_eq!(map.skipped, ["w9.example.org:8080"]);
        assert_eq!(document["version_info"], "2-17");
        let resource = &document["resources"][0];
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
}

//! Map of HAProxy.

use super::rendered_map::RenderedMap;
use crate::protocol::TableOwners;
use std::fmt::Write as _;
use std::net::SocketAddr;

/// Lists the served partitions with the addresses of their owners, which HAProxy takes as destinations.
pub(super) fn render(owners: &TableOwners) -> RenderedMap {
    let mut text =
        format!("# partitions of {} with their owners, version {}-{}\n", owners.table, owners.table_id, owners.version);
    let mut skipped = Vec::new();
    for row in &owners.partitions {
        let Some(owner) = row.owner.as_ref().filter(|owner| owner.serves) else { continue };
        match owner.address.parse::<SocketAddr>() {
            Ok(socket) => {
                // Writing to text does not fail.
                let _ = writeln!(text, "{} {} {}", row.partition, socket.ip(), socket.port());
            }
            Err(_) if skipped.contains(&owner.address) => {}
            Err(_) => skipped.push(owner.address.clone()),
        }
    }
    RenderedMap { text, skipped }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map_file::rendered_map::fixtures::owners;

    #[test]
    fn lines_name_the_served_partitions() {
        let map = render(&owners());
        let lines: Vec<_> = map.text.lines().collect();
        let head = "# partitions of jobs with their owners, version 2-17";
        assert_eq!(lines, [head, "0 10.0.0.7 8080", "1 10.0.0.8 8080", "2 10.0.0.7 8080", "6 2001:db8::1 80"]);
        assert_eq!(map.skipped, ["w9.example.org:8080"]);
    }
}

//! Content of a file with owners.

/// Content of a file.
#[derive(Debug)]
pub(super) struct RenderedMap {
    pub(super) text: String,
    /// Addresses that are no IP address and port.
    pub(super) skipped: Vec<String>,
}

#[cfg(test)]
pub(super) mod fixtures {
    use crate::protocol::{OwnerAddress, PartitionOwner, TableOwners};

    fn owned(partition: u32, address: &str, serves: bool) -> PartitionOwner {
        let owner = OwnerAddress { participant: "w1".to_owned(), address: address.to_owned(), epoch: 9, serves };
        PartitionOwner { partition, owner: Some(owner) }
    }

    /// Owners of seven partitions: one has no owner, one is not served yet, and one has an owner at a name.
    pub(in crate::map_file) fn owners() -> TableOwners {
        let partitions = vec![
            owned(0, "10.0.0.7:8080", true),
            owned(1, "10.0.0.8:8080", true),
            owned(2, "10.0.0.7:8080", true),
            owned(3, "10.0.0.8:8080", false),
            PartitionOwner { partition: 4, owner: None },
            owned(5, "w9.example.org:8080", true),
            owned(6, "[2001:db8::1]:80", true),
        ];
        TableOwners { table: "jobs".to_owned(), table_id: 2, version: 17, complete: true, partitions }
    }
}

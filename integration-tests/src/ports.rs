//! Free ports on loopback.

/// Returns `count` unused loopback addresses; see [`archon_local_cluster::free_addresses`].
///
/// # Panics
/// If the machine has no free port left.
pub fn free_addresses(count: usize) -> Vec<String> {
    archon_local_cluster::free_addresses(count).expect("free ports on loopback")
}

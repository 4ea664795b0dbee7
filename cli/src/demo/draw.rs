//! Drawing of the partition table: a line per node, a column per partition.

use crate::documents::Partition;
use archon_client::ReplicaState;
use std::collections::{BTreeMap, BTreeSet};

/// Copies and leaders: node name → partition → leads.
pub(super) type Picture = BTreeMap<String, BTreeMap<u32, bool>>;

/// Collects the in-sync copies of a table. Nodes without copies are included if they are in `nodes`.
pub(super) fn picture(partitions: &[Partition], nodes: &[&str]) -> Picture {
    let mut picture: Picture = nodes.iter().map(|name| ((*name).to_owned(), BTreeMap::new())).collect();
    for partition in partitions {
        for copy in partition.copies.iter().filter(|copy| copy.state == ReplicaState::Live) {
            let leads = partition.leader_id == Some(copy.node_id);
            picture.entry(copy.node.clone()).or_default().insert(partition.id, leads);
        }
    }
    picture
}

/// Returns the number of copies on each node, in descending order.
pub(super) fn copies(picture: &Picture) -> Vec<usize> {
    sorted(picture.values().map(BTreeMap::len).collect())
}

/// Returns the number of partitions that each node leads, in descending order.
pub(super) fn leaders(picture: &Picture) -> Vec<usize> {
    sorted(picture.values().map(|held| held.values().filter(|leads| **leads).count()).collect())
}

fn sorted(mut shares: Vec<usize>) -> Vec<usize> {
    shares.sort_unstable_by(|left, right| right.cmp(left));
    shares
}

/// Returns the copies that are in the second picture and not in the first: partition and node.
pub(super) fn gained(before: &Picture, after: &Picture) -> BTreeSet<(u32, String)> {
    let had = |name: &String, id: &u32| before.get(name).is_some_and(|held| held.contains_key(id));
    let gained = after.iter().flat_map(|(name, held)| held.keys().map(move |id| (name, id)));
    gained.filter(|(name, id)| !had(name, id)).map(|(name, id)| (*id, name.clone())).collect()
}

/// Draws the picture: `[3]` leads, ` 3 ` follows, ` · ` holds no copy; a copy that is in `new` is marked with a star.
pub(super) fn draw(picture: &Picture, partitions: u32, new: &BTreeSet<(u32, String)>) -> String {
    let width = picture.keys().map(|name| name.chars().count()).max().unwrap_or(0);
    let line = |(name, held): (&String, &BTreeMap<u32, bool>)| {
        let cells = (0..partitions).map(|id| {
            let star = if new.contains(&(id, name.clone())) { "*" } else { " " };
            match held.get(&id) {
                Some(true) => format!("[{id}]{star}"),
                Some(false) => format!(" {id} {star}"),
                None => " ·  ".to_owned(),
            }
        });
        format!("{name:<width$}  {}", cells.collect::<Vec<_>>().concat()).trim_end().to_owned()
    };
    picture.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture_of(rows: &[(&str, &[u32], &[u32])]) -> Picture {
        let held = |leads: &[u32], follows: &[u32]| {
            leads.iter().map(|id| (*id, true)).chain(follows.iter().map(|id| (*id, false))).collect()
        };
        rows.iter().map(|(name, leads, follows)| ((*name).to_owned(), held(leads, follows))).collect()
    }

    #[test]
    fn leaders_are_boxed_and_new_copies_have_a_star() {
        let before = picture_of(&[("athens", &[0, 1], &[2]), ("byzantium", &[2], &[0, 1]), ("ephesus", &[], &[])]);
        let after = picture_of(&[("athens", &[0], &[2]), ("byzantium", &[2], &[0, 1]), ("ephesus", &[1], &[])]);
        let new = gained(&before, &after);
        assert_eq!(new, BTreeSet::from([(1, "ephesus".to_owned())]));
        assert_eq!((copies(&after), leaders(&after)), (vec![3, 2, 1], vec![1, 1, 1]));
        assert_eq!(
            draw(&after, 3, &new),
            "\
athens     [0]  ·   2
byzantium   0   1  [2]
ephesus     ·  [1]* ·"
        );
    }
}

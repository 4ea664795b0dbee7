//! The partition table as a picture: a line per node, its partitions in boxes.

use crate::view::Partition;
use std::collections::{BTreeMap, BTreeSet};

/// Who leads what: node name → its partitions.
pub(super) type Picture = BTreeMap<String, BTreeSet<u16>>;

/// Reads the picture out of a table. Nodes that lead nothing are there if they are named in `nodes`.
pub(super) fn picture(partitions: &[Partition], nodes: &[&str]) -> Picture {
    let mut picture: Picture = nodes.iter().map(|name| ((*name).to_owned(), BTreeSet::new())).collect();
    for partition in partitions {
        if let Some(leader) = &partition.leader {
            picture.entry(leader.clone()).or_default().insert(partition.id);
        }
    }
    picture
}

/// How many partitions each node leads, the most first.
pub(super) fn shares(picture: &Picture) -> Vec<usize> {
    let mut shares: Vec<usize> = picture.values().map(BTreeSet::len).collect();
    shares.sort_unstable_by(|left, right| right.cmp(left));
    shares
}

/// Partitions that changed their node.
pub(super) fn moved(before: &Picture, after: &Picture) -> BTreeSet<u16> {
    let owners = |picture: &Picture| -> BTreeMap<u16, String> {
        picture.iter().flat_map(|(name, held)| held.iter().map(move |id| (*id, name.clone()))).collect()
    };
    let (old, new) = (owners(before), owners(after));
    new.into_iter().filter(|(id, owner)| old.get(id) != Some(owner)).map(|(id, _)| id).collect()
}

/// One picture.
pub(super) fn draw(picture: &Picture) -> String {
    let width = name_width(picture);
    picture.iter().map(|(name, held)| line(name, held, width, &BTreeSet::new())).collect::<Vec<_>>().join("\n")
}

/// Two pictures side by side; what moved is marked in the second.
pub(super) fn draw_both(before: &Picture, after: &Picture) -> String {
    let moved = moved(before, after);
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let width = name_width(before).max(name_width(after));
    let nothing = BTreeSet::new();
    let left: Vec<String> =
        names.iter().map(|name| line(name, before.get(*name).unwrap_or(&nothing), width, &nothing)).collect();
    let right = names.iter().map(|name| line(name, after.get(*name).unwrap_or(&nothing), width, &moved));
    let half = left.iter().map(|text| text.chars().count()).max().unwrap_or(0).max("before".len());
    let mut lines = vec![format!("{:<half$}      after", "before")];
    lines.extend(left.iter().zip(right).map(|(left, right)| format!("{left:<half$}  |   {right}")));
    lines.push(format!("{:<half$}      (* moved)", ""));
    lines.join("\n")
}

fn name_width(picture: &Picture) -> usize {
    picture.keys().map(|name| name.chars().count()).max().unwrap_or(0)
}

fn line(name: &str, held: &BTreeSet<u16>, width: usize, marked: &BTreeSet<u16>) -> String {
    let boxes: Vec<String> =
        held.iter().map(|id| if marked.contains(id) { format!("[{id}]*") } else { format!("[{id}]") }).collect();
    format!("{name:<width$}  {}", boxes.join(" ")).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture_of(rows: &[(&str, &[u16])]) -> Picture {
        rows.iter().map(|(name, held)| ((*name).to_owned(), held.iter().copied().collect())).collect()
    }

    #[test]
    fn before_and_after_stand_side_by_side() {
        let before = picture_of(&[("athens", &[0, 3, 6]), ("byzantium", &[1, 4, 7]), ("cyrene", &[2, 5, 8])]);
        let after =
            picture_of(&[("athens", &[0, 3, 6]), ("byzantium", &[1, 4]), ("cyrene", &[2, 5]), ("ephesus", &[7, 8])]);
        assert_eq!(moved(&before, &after), BTreeSet::from([7, 8]));
        assert_eq!(shares(&after), [3, 2, 2, 2]);
        assert_eq!(
            draw_both(&before, &after),
            "\
before                      after
athens     [0] [3] [6]  |   athens     [0] [3] [6]
byzantium  [1] [4] [7]  |   byzantium  [1] [4]
cyrene     [2] [5] [8]  |   cyrene     [2] [5]
ephesus                 |   ephesus    [7]* [8]*
                            (* moved)"
        );
        assert_eq!(draw(&after).lines().last(), Some("ephesus    [7] [8]"));
    }
}

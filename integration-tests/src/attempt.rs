//! One split or merge, from its begin to its end, as the events tell of it: those are confirmed, and partition lists may be old.

use archon_client::{Admin, Error, Event, EventCode, Subject};

/// Latest events that are looked through.
const EVENTS: u32 = 1_000;

/// What an attempt is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reshape {
    /// One partition is to be two.
    Split,
    /// Two partitions are to be one.
    Merge,
}

impl Reshape {
    const fn begins(self) -> EventCode {
        match self {
            Self::Split => EventCode::SplitBegun,
            Self::Merge => EventCode::MergeBegun,
        }
    }

    /// How one ends that is done.
    pub const fn done(self) -> EventCode {
        match self {
            Self::Split => EventCode::Parted,
            Self::Merge => EventCode::Merged,
        }
    }

    /// How one ends that is given up.
    pub const fn given_up(self) -> EventCode {
        match self {
            Self::Split => EventCode::SplitAbandoned,
            Self::Merge => EventCode::MergeAbandoned,
        }
    }
}

/// A split or a merge that was begun.
#[derive(Clone, Debug)]
pub struct Attempt {
    admin: Admin,
    table: String,
    /// What it is.
    pub reshape: Reshape,
    /// The partition that is split, or that gets the other one's keys.
    pub left: u32,
    /// The partition that is made, or that ends.
    pub right: u32,
}

impl Attempt {
    /// Begins to split a partition.
    ///
    /// # Errors
    /// If it is refused, or nobody answers.
    pub async fn split(admin: &Admin, table: &str, partition: u32, at: &str) -> Result<Self, Error> {
        let split = admin.split_partition(table, partition, Some(at.as_bytes()), false).await?;
        Ok(Self::new(admin, table, Reshape::Split, partition, split.right))
    }

    /// Begins to merge a partition with its right neighbour.
    ///
    /// # Errors
    /// As for a split.
    pub async fn merge(admin: &Admin, table: &str, partition: u32) -> Result<Self, Error> {
        let merge = admin.merge_partition(table, partition, false).await?;
        Ok(Self::new(admin, table, Reshape::Merge, partition, merge.right))
    }

    fn new(admin: &Admin, table: &str, reshape: Reshape, left: u32, right: u32) -> Self {
        Self { admin: admin.clone(), table: table.to_owned(), reshape, left, right }
    }

    /// Has it given up.
    ///
    /// # Errors
    /// If it is over, or nobody answers.
    pub async fn cancel(&self) -> Result<(), Error> {
        match self.reshape {
            Reshape::Split => drop(self.admin.cancel_split(&self.table, self.left).await?),
            Reshape::Merge => drop(self.admin.cancel_merge(&self.table, self.left).await?),
        }
        Ok(())
    }

    /// What was told of it so far, its begin first. Nothing if that was so long ago that it is forgotten.
    ///
    /// # Errors
    /// If nobody answers.
    pub async fn events(&self) -> Result<Vec<Event>, Error> {
        let mut told = self.admin.events(EVENTS).await?;
        told.retain(|event| self.concerns(&event.subject));
        let begun = told.iter().rposition(|event| event.code == self.reshape.begins()).unwrap_or(told.len());
        Ok(told.split_off(begun))
    }

    /// How it ended, if that is among what was told of it.
    pub fn end_in<'a>(&self, told: &'a [Event]) -> Option<&'a Event> {
        told.iter().find(|event| event.code == self.reshape.done() || event.code == self.reshape.given_up())
    }

    fn concerns(&self, subject: &Subject) -> bool {
        matches!(subject, Subject::Partition { table, partition, .. } if *table == self.table && *partition == self.left)
    }
}

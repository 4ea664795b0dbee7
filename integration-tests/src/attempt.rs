//! Follows one split or merge from begin to end by its events: events are committed, whereas partition lists can be out
//! of date.

use archon_client::{Admin, Error, Event, EventCode, Subject};

/// Number of latest events to search.
const EVENTS: u32 = 1_000;

/// Kind of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reshape {
    /// One partition becomes two.
    Split,
    /// Two partitions become one.
    Merge,
}

impl Reshape {
    const fn begins(self) -> EventCode {
        match self {
            Self::Split => EventCode::SplitBegun,
            Self::Merge => EventCode::MergeBegun,
        }
    }

    /// Returns the event of a completed attempt.
    pub const fn done(self) -> EventCode {
        match self {
            Self::Split => EventCode::Parted,
            Self::Merge => EventCode::Merged,
        }
    }

    /// Returns the event of an abandoned attempt.
    pub const fn given_up(self) -> EventCode {
        match self {
            Self::Split => EventCode::SplitAbandoned,
            Self::Merge => EventCode::MergeAbandoned,
        }
    }
}

/// A split or merge that has begun.
#[derive(Clone, Debug)]
pub struct Attempt {
    admin: Admin,
    table: String,
    /// Split or merge.
    pub reshape: Reshape,
    /// The partition to split, or the merge target.
    pub left: u32,
    /// The new partition, or the merge source.
    pub right: u32,
}

impl Attempt {
    /// Starts a split.
    ///
    /// # Errors
    /// If it is refused, or no coordinator answers.
    pub async fn split(admin: &Admin, table: &str, partition: u32, at: &str) -> Result<Self, Error> {
        let split = admin.split_partition(table, partition, Some(at.as_bytes()), false).await?;
        Ok(Self::new(admin, table, Reshape::Split, partition, split.right))
    }

    /// Starts a merge of a partition with its right neighbour.
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

    /// Cancels the attempt.
    ///
    /// # Errors
    /// If it has ended already, or no coordinator answers.
    pub async fn cancel(&self) -> Result<(), Error> {
        match self.reshape {
            Reshape::Split => drop(self.admin.cancel_split(&self.table, self.left).await?),
            Reshape::Merge => drop(self.admin.cancel_merge(&self.table, self.left).await?),
        }
        Ok(())
    }

    /// Returns the events of the attempt so far, its begin first. Empty if they are too old to be kept.
    ///
    /// # Errors
    /// If no coordinator answers.
    pub async fn events(&self) -> Result<Vec<Event>, Error> {
        let mut told = self.admin.events(EVENTS).await?;
        told.retain(|event| self.concerns(&event.subject));
        let begun = told.iter().rposition(|event| event.code == self.reshape.begins()).unwrap_or(told.len());
        Ok(told.split_off(begun))
    }

    /// Returns the event that ended the attempt, if it is among `told`.
    pub fn end_in<'a>(&self, told: &'a [Event]) -> Option<&'a Event> {
        told.iter().find(|event| event.code == self.reshape.done() || event.code == self.reshape.given_up())
    }

    fn concerns(&self, subject: &Subject) -> bool {
        matches!(subject, Subject::Partition { table, partition, .. } if *table == self.table && *partition == self.left)
    }
}

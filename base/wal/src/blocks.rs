//! Write buffer of the log: whole blocks, the first of which may be partly written already.
//!
//! Direct writes cover whole blocks, but groups of frames begin and end anywhere. So the unfinished last block is
//! kept and written again with the following data. Its acknowledged bytes are rewritten unchanged, so a write that is
//! lost or torn between two sectors leaves them intact. The padding after the last frame is zeros, as in a
//! zero-filled file, which recovery reads as the end.

use std::io;

use crate::disk::{BLOCK_ALIGNMENT, DurableFile};

/// A buffer for all writes. It grows with the largest group and is kept, up to a bound.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// Unused bytes for alignment, then the blocks.
    bytes: Vec<u8>,
    /// Start of the first block; an aligned address whenever it is written.
    lead: usize,
    /// Leading bytes that are durable already.
    kept: usize,
    block_bytes: usize,
}

impl Blocks {
    /// Creates a buffer for the data after `tail`, the bytes between the last multiple of `block_bytes` and the end.
    pub(crate) fn new(block_bytes: usize, tail: &[u8]) -> Blocks {
        debug_assert!(tail.len() < block_bytes);
        Blocks { bytes: tail.to_vec(), lead: 0, kept: tail.len(), block_bytes }
    }

    /// Continues in another file with the same memory.
    pub(crate) fn restart(&mut self, block_bytes: usize, tail: &[u8]) {
        debug_assert!(self.is_empty() && tail.len() < block_bytes);
        self.bytes.truncate(self.lead);
        self.bytes.extend_from_slice(tail);
        (self.kept, self.block_bytes) = (tail.len(), block_bytes);
    }

    /// Returns the offset of the first unwritten byte in [`buffer`](Blocks::buffer).
    pub(crate) fn start(&self) -> usize {
        self.lead + self.kept
    }

    /// Returns the buffer, to append to.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Returns the number of unwritten bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the appended data in one durable write to `at` in `file`, which has `size` bytes.
    ///
    /// # Errors
    /// Errors of the file system; the write must not be retried.
    pub(crate) fn write(&mut self, file: &dyn DurableFile, at: u32, size: u64) -> io::Result<()> {
        let first = u64::from(at) - self.kept as u64;
        let used = self.bytes.len() - self.lead;
        // A file of unusual size may end within a block.
        let room = usize::try_from(size - first).unwrap_or(usize::MAX);
        let whole = used.next_multiple_of(self.block_bytes).min(room).max(used);
        self.bytes.resize(self.lead + whole, 0);
        self.align();
        file.write_durable(first, &self.bytes[self.lead..])?;
        self.kept = used % self.block_bytes;
        let end = self.lead + used;
        self.bytes.copy_within(end - self.kept..end, self.lead);
        self.bytes.truncate(self.lead + self.kept);
        Ok(())
    }

    /// Releases memory above `bytes_max`, so that one huge batch does not hold it permanently.
    pub(crate) fn shrink_to(&mut self, bytes_max: usize) {
        self.bytes.shrink_to(bytes_max);
    }

    /// Moves the blocks to an aligned address: needed after the buffer has grown, not on every write.
    fn align(&mut self) {
        if self.block_bytes == 1 || self.aligned() == self.lead {
            return;
        }
        self.bytes.reserve(BLOCK_ALIGNMENT);
        let (from, to, end) = (self.lead, self.aligned(), self.bytes.len());
        self.bytes.resize(end.max(to + end - from), 0);
        self.bytes.copy_within(from..end, to);
        self.bytes.truncate(to + end - from);
        self.lead = to;
    }

    /// Returns the offset of the first aligned address in the buffer.
    fn aligned(&self) -> usize {
        self.bytes.as_ptr().addr().next_multiple_of(BLOCK_ALIGNMENT) - self.bytes.as_ptr().addr()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::disk::{Disk, MemoryDisk};

    fn disk_with(bytes: &[u8], block_bytes: usize) -> (MemoryDisk, Arc<dyn DurableFile>) {
        let disk = MemoryDisk::with_block_bytes(block_bytes);
        let file = disk.create("a").unwrap();
        file.write_at(0, bytes).unwrap();
        file.sync().unwrap();
        (disk.clone(), disk.open_durable("a").unwrap())
    }

    #[test]
    fn groups_are_appended_and_blocks_padded_with_zeros() {
        // Stale bytes of an earlier use, the tail of a header, then groups of many sizes.
        let (disk, file) = disk_with(&[0xee; 64 * 1024], 4096);
        let mut blocks = Blocks::new(4096, &[1; 70]);
        let mut expected = vec![1; 70];
        for (number, bytes) in [8, 4000, 18, 4096, 1, 12_000, 8191].into_iter().enumerate() {
            let group = vec![number as u8 + 2; bytes];
            blocks.buffer().extend_from_slice(&group);
            assert_eq!(blocks.len(), bytes);
            blocks.write(&*file, expected.len() as u32, 64 * 1024).unwrap();
            expected.extend_from_slice(&group);
            assert!(blocks.is_empty());
            let found = disk.contents("a").unwrap();
            assert!(found.starts_with(&expected), "after {bytes}");
            let padded = expected.len().next_multiple_of(4096);
            assert!(found[expected.len()..padded].iter().all(|byte| *byte == 0), "after {bytes}");
            assert!(found[padded..].iter().all(|byte| *byte == 0xee), "after {bytes}");
        }
    }

    #[test]
    fn file_that_ends_within_a_block_does_not_grow() {
        let (disk, file) = disk_with(&[0; 5000], 4096);
        let mut blocks = Blocks::new(4096, &[]);
        for (at, bytes) in [(0, 4090), (4090, 100), (4190, 810)] {
            blocks.buffer().extend(vec![7; bytes]);
            blocks.write(&*file, at, 5000).unwrap();
        }
        assert_eq!(disk.contents("a").unwrap(), [7; 5000]);
    }

    #[test]
    fn block_size_one_writes_only_new_bytes() {
        let (disk, file) = disk_with(&[0xee; 8192], 1);
        let mut blocks = Blocks::new(1, &[]);
        blocks.buffer().extend_from_slice(&[1; 10]);
        blocks.write(&*file, 100, 8192).unwrap();
        let found = disk.contents("a").unwrap();
        assert_eq!((found[99], found[100], found[109], found[110]), (0xee, 1, 1, 0xee));
    }

    #[test]
    fn memory_is_kept_up_to_a_bound() {
        let (_, file) = disk_with(&[0; 8 << 20], 4096);
        let mut blocks = Blocks::new(4096, &[]);
        blocks.buffer().resize(5 << 20, 1);
        blocks.write(&*file, 0, 8 << 20).unwrap();
        let address = blocks.bytes.as_ptr().addr();
        blocks.buffer().extend_from_slice(&[1; 5000]);
        blocks.write(&*file, 5 << 20, 8 << 20).unwrap();
        assert_eq!(blocks.bytes.as_ptr().addr(), address, "reused");
        blocks.shrink_to(1 << 20);
        assert!(blocks.bytes.capacity() <= 1 << 20);
        // The buffer may have moved.
        blocks.buffer().extend_from_slice(&[1; 5000]);
        blocks.write(&*file, (5 << 20) + 5000, 8 << 20).unwrap();
    }
}

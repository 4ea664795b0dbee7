//! Files of entries. A file consists of a header, blocks of entries, and an empty block as its end, so truncation is
//! always detected. Every byte is covered by a checksum.
//!
//! Numbers are big-endian; checksums are CRC-32C.
//!
//! | bytes | header of a file |
//! |---|---|
//! | 8 | `ARCHONBK` |
//! | 4 | the format: 1 without values that expire, or 2 |
//! | 4 | checksum of the preceding bytes |
//!
//! | bytes | each block |
//! |---|---|
//! | 8 | number of the block, from 0 |
//! | 4 | length of the entries; 0: end of the file |
//! | 4 | number of entries |
//! | 4 | checksum of the entries |
//! | 4 | checksum of the preceding bytes of the block |
//! | | the entries, packed |

use crate::error::BackupError;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use crc32c::{crc32c, crc32c_append};

/// Format of files and manifests.
pub const FORMAT: u32 = 2;
/// Oldest format that is read: its files have no values that expire.
pub(crate) const FORMAT_MIN: u32 = 1;
/// Maximum length of a block. A page of a snapshot is shorter, unless a single entry is longer.
pub const BLOCK_BYTES_MAX: usize = 8 * 1024 * 1024;

// A block is one received page of a snapshot.
const _: () = assert!(archon_types::limits::MESSAGE_BYTES_MAX <= BLOCK_BYTES_MAX);

const MAGIC: &[u8; 8] = b"ARCHONBK";
pub(crate) const HEAD_BYTES: usize = 16;
pub(crate) const BLOCK_HEAD_BYTES: usize = 24;

/// Totals of a whole file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct FileSum {
    /// Length in bytes.
    pub(crate) bytes: u64,
    /// Number of blocks, without the end block.
    pub(crate) blocks: u64,
    /// Number of entries.
    pub(crate) entries: u64,
    /// Checksum of the whole file.
    pub(crate) crc32c: u32,
}

impl FileSum {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.crc32c = crc32c_append(self.crc32c, bytes);
    }
}

/// Encodes a file incrementally.
#[derive(Debug)]
pub(crate) struct FileWriter {
    sum: FileSum,
}

impl FileWriter {
    /// Creates a writer; returns it with the header bytes.
    pub(crate) fn begin() -> (Self, Bytes) {
        let mut head = BytesMut::with_capacity(HEAD_BYTES);
        head.put_slice(MAGIC);
        head.put_u32(FORMAT);
        head.put_u32(crc32c(&head));
        let mut sum = FileSum::default();
        sum.add(&head);
        (Self { sum }, head.freeze())
    }

    /// Returns the header of the next block; the caller writes it, then these entries.
    ///
    /// # Errors
    /// `Usage` if the block is too long for readers.
    pub(crate) fn block(&mut self, entries: &[u8], count: u32, checksum: u32) -> Result<Bytes, BackupError> {
        let length = u32::try_from(entries.len()).ok().filter(|_| entries.len() <= BLOCK_BYTES_MAX);
        let length = length.ok_or_else(|| {
            let bytes = entries.len();
            BackupError::Usage(format!("a page of {bytes} bytes does not fit into a block of {BLOCK_BYTES_MAX}"))
        })?;
        let head = self.head(length, count, checksum);
        self.sum.add(entries);
        self.sum.blocks += 1;
        self.sum.entries += u64::from(count);
        Ok(head)
    }

    /// Returns the end block and the totals of the file.
    pub(crate) fn end(mut self) -> (Bytes, FileSum) {
        let end = self.head(0, 0, 0);
        (end, self.sum)
    }

    fn head(&mut self, length: u32, count: u32, checksum: u32) -> Bytes {
        let mut head = BytesMut::with_capacity(BLOCK_HEAD_BYTES);
        head.put_u64(self.sum.blocks);
        head.put_u32(length);
        head.put_u32(count);
        head.put_u32(checksum);
        head.put_u32(crc32c(&head));
        self.sum.add(&head);
        head.freeze()
    }
}

/// The entries of one block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    pub(crate) number: u64,
    pub(crate) entries: Bytes,
    pub(crate) count: u32,
}

/// Decodes a file incrementally: the caller supplies the requested bytes.
#[derive(Debug)]
pub(crate) struct FileReader {
    file: String,
    sum: FileSum,
    over: bool,
}

/// A decoded block header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockHead {
    pub(crate) length: usize,
    count: u32,
    checksum: u32,
}

impl FileReader {
    pub(crate) fn new(file: &str) -> Self {
        Self { file: file.to_owned(), sum: FileSum::default(), over: false }
    }

    /// Returns whether the last block was read.
    pub(crate) const fn is_over(&self) -> bool {
        self.over
    }

    /// Returns the totals so far.
    pub(crate) const fn sum(&self) -> FileSum {
        self.sum
    }

    /// Decodes the first [`HEAD_BYTES`].
    pub(crate) fn head(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        let damaged = |what: &str| BackupError::damaged(&self.file, None, what);
        let Some((mut content, mut sum)) = bytes.split_at_checked(HEAD_BYTES - 4).filter(|(_, sum)| sum.len() == 4)
        else {
            return Err(damaged("it is shorter than its head"));
        };
        if &content[..8] != MAGIC {
            return Err(damaged("it is not a file of a backup"));
        }
        if sum.get_u32() != crc32c(content) {
            return Err(damaged("the checksum of its head does not fit"));
        }
        content.advance(8);
        let found = content.get_u32();
        if !(FORMAT_MIN..=FORMAT).contains(&found) {
            return Err(BackupError::Newer { file: self.file.clone(), found, known: FORMAT });
        }
        self.sum.add(bytes);
        Ok(())
    }

    /// Decodes the [`BLOCK_HEAD_BYTES`] of the next block; returns `None` at the end of the file.
    pub(crate) fn block_head(&mut self, bytes: &[u8]) -> Result<Option<BlockHead>, BackupError> {
        let mut head = bytes;
        if head.len() != BLOCK_HEAD_BYTES {
            return Err(self.damaged("the file is cut off before its end"));
        }
        let sum = crc32c(&head[..BLOCK_HEAD_BYTES - 4]);
        let (number, length, count) = (head.get_u64(), head.get_u32() as usize, head.get_u32());
        let (checksum, own) = (head.get_u32(), head.get_u32());
        if own != sum {
            return Err(self.damaged("the checksum of its head does not fit"));
        }
        if number != self.sum.blocks || length > BLOCK_BYTES_MAX {
            return Err(self.damaged("it is not the block that belongs here"));
        }
        self.sum.add(bytes);
        if length == 0 {
            self.over = true;
            return Ok(None);
        }
        Ok(Some(BlockHead { length, count, checksum }))
    }

    /// Checks the entries of a block.
    pub(crate) fn block(&mut self, head: BlockHead, entries: Bytes) -> Result<Block, BackupError> {
        if entries.len() != head.length {
            return Err(self.damaged("the file is cut off before its end"));
        }
        if crc32c(&entries) != head.checksum {
            return Err(self.damaged("the checksum of its entries does not fit"));
        }
        self.sum.add(&entries);
        let number = self.sum.blocks;
        self.sum.blocks += 1;
        self.sum.entries += u64::from(head.count);
        Ok(Block { number, entries, count: head.count })
    }

    fn damaged(&self, what: &str) -> BackupError {
        BackupError::damaged(&self.file, Some(self.sum.blocks), what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{Revision, StoredValue, pack_entry, unpack_entries};

    fn file(blocks: &[Vec<(&str, &str)>]) -> (Vec<u8>, FileSum) {
        let (mut writer, head) = FileWriter::begin();
        let mut file = head.to_vec();
        for (number, block) in blocks.iter().enumerate() {
            let mut entries = BytesMut::new();
            for (key, value) in block {
                let value = Bytes::copy_from_slice(value.as_bytes());
                pack_entry(&mut entries, key.as_bytes(), &StoredValue::new(value, Revision::new(number as u64)));
            }
            file.extend(writer.block(&entries, block.len() as u32, crc32c(&entries)).unwrap());
            file.extend(&entries);
        }
        let (end, sum) = writer.end();
        file.extend(end);
        (file, sum)
    }

    fn read(mut file: &[u8]) -> Result<(usize, FileSum), BackupError> {
        let mut take = |bytes: usize| file.split_off(..bytes.min(file.len())).unwrap_or_default();
        let mut reader = FileReader::new("a file");
        reader.head(take(HEAD_BYTES))?;
        let mut found = 0;
        while let Some(head) = reader.block_head(take(BLOCK_HEAD_BYTES))? {
            let block = reader.block(head, Bytes::copy_from_slice(take(head.length)))?;
            found += unpack_entries(&block.entries).filter(Result::is_ok).count();
        }
        assert!(reader.is_over());
        Ok((found, reader.sum()))
    }

    fn two_blocks() -> (Vec<u8>, FileSum) {
        file(&[vec![("a", "1"), ("b", "22")], vec![("c", "333")]])
    }

    #[test]
    fn file_round_trips() {
        let (whole, sum) = two_blocks();
        assert_eq!(read(&whole).unwrap(), (3, sum));
        assert_eq!((sum.bytes, sum.blocks, sum.entries, sum.crc32c), (whole.len() as u64, 2, 3, crc32c(&whole)));
        assert_eq!(read(&file(&[]).0).unwrap().0, 0);
    }

    /// Returns a block of `bytes`: entries with large values, or with values of one byte and a last entry with the
    /// rest.
    fn block_of(bytes: usize, tiny: bool) -> (BytesMut, u32) {
        let (mut entries, mut count) = (BytesMut::new(), 0);
        let mut pack = |key: &[u8], value: &[u8]| {
            pack_entry(&mut entries, key, &StoredValue::new(Bytes::copy_from_slice(value), Revision::new(1)));
            count += 1;
            entries.len()
        };
        let empty = pack(b"k", b"");
        let mut length = empty;
        let value = vec![1; if tiny { 1 } else { 512 * 1024 }];
        while length + 2 * (empty + value.len()) < bytes {
            length = pack(b"k", &value);
        }
        length = pack(b"k", &vec![0; bytes - length - empty]);
        assert_eq!(length, bytes);
        (entries, count)
    }

    #[test]
    fn block_at_the_bound_is_read_and_one_above_is_not_written() {
        for tiny in [false, true] {
            for bytes in [BLOCK_BYTES_MAX - 1, BLOCK_BYTES_MAX, BLOCK_BYTES_MAX + 1] {
                let (entries, count) = block_of(bytes, tiny);
                let (mut writer, head) = FileWriter::begin();
                let written = writer.block(&entries, count, crc32c(&entries));
                assert_eq!(written.is_ok(), bytes <= BLOCK_BYTES_MAX, "{bytes} bytes, tiny: {tiny}");
                let Ok(block) = written else { continue };
                let (end, sum) = writer.end();
                let file = [&head[..], &block, &entries, &end].concat();
                assert_eq!(read(&file).unwrap(), (count as usize, sum), "{bytes} bytes, tiny: {tiny}");
            }
        }
    }

    #[test]
    fn truncated_file_is_rejected() {
        let (whole, _) = two_blocks();
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).is_err(), "cut off after {length} of {} bytes", whole.len());
        }
    }

    #[test]
    fn flipped_bits_are_detected() {
        let (whole, _) = two_blocks();
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&damaged).is_err(), "bit {} of byte {}", bit % 8, bit / 8);
        }
    }

    #[test]
    fn error_names_the_damaged_block() {
        let (mut whole, _) = two_blocks();
        let end = whole.len() - BLOCK_HEAD_BYTES;
        whole[end - 1] ^= 1;
        let error = read(&whole).unwrap_err();
        assert!(matches!(error, BackupError::Damaged { block: Some(1), .. }), "{error}");
    }

    #[test]
    fn swapped_blocks_are_detected() {
        let (whole, _) = file(&[vec![("a", "1")], vec![("b", "2")]]);
        let block = BLOCK_HEAD_BYTES + 16 + 2;
        let mut swapped = whole[..HEAD_BYTES].to_vec();
        swapped.extend(&whole[HEAD_BYTES + block..HEAD_BYTES + 2 * block]);
        swapped.extend(&whole[HEAD_BYTES..HEAD_BYTES + block]);
        swapped.extend(&whole[HEAD_BYTES + 2 * block..]);
        assert_eq!(swapped.len(), whole.len());
        assert!(read(&swapped).is_err());
    }

    #[test]
    fn newer_format_is_rejected_by_number() {
        let (mut whole, _) = two_blocks();
        let mut of_format = |format: u32| {
            whole[8..12].copy_from_slice(&format.to_be_bytes());
            let sum = crc32c(&whole[..12]);
            whole[12..16].copy_from_slice(&sum.to_be_bytes());
            read(&whole)
        };
        assert!(matches!(of_format(3), Err(BackupError::Newer { found: 3, known: 2, .. })));
        assert!(of_format(1).is_ok(), "it has no values that expire");
        assert!(of_format(0).is_err());
    }
}

//! Tests of the simulated disk: it loses what a real one may lose, and nothing else.

use super::*;

#[test]
fn only_synced_data_is_guaranteed_to_survive() {
    let disk = MemoryDisk::new();
    let file = disk.create("a").unwrap();
    file.write_at(0, b"kept").unwrap();
    file.sync().unwrap();
    disk.sync_directory().unwrap();
    file.write_at(0, b"lost").unwrap();
    disk.create("b").unwrap();

    // With 0 no pending write survives, with odd numbers no change of names.
    let mut numbers = [0u64, 1].into_iter();
    let after = disk.power_loss(|| numbers.next().unwrap());
    assert_eq!(after.contents("a").unwrap(), b"kept");
    assert!(after.contents("b").is_none());
    assert!(file.sync().is_err() && disk.powered_off(), "the old machine is off");
}

#[test]
fn torn_write_mixes_sectors() {
    let disk = MemoryDisk::new();
    let file = disk.create("a").unwrap();
    file.write_at(0, &[1; 1024]).unwrap();
    file.sync().unwrap();
    disk.sync_directory().unwrap();
    file.write_at(0, &[2; 1024]).unwrap();
    let mut numbers = [2u64, 1, 0].into_iter();
    let bytes = disk.power_loss(|| numbers.next().unwrap()).contents("a").unwrap();
    assert_eq!((bytes[0], bytes[511], bytes[512], bytes[1023]), (1, 1, 2, 2));
}

/// Returns two blocks of aligned memory.
fn aligned(bytes: &mut Vec<u8>, fill: u8) -> &[u8] {
    bytes.resize(12_288, fill);
    let start = bytes.as_ptr().addr().next_multiple_of(4096) - bytes.as_ptr().addr();
    &bytes[start..start + 8192]
}

#[test]
fn durable_write_is_torn_only_by_power_loss_during_it() {
    let (disk, memory) = (MemoryDisk::new(), &mut Vec::new());
    disk.create("a").unwrap();
    disk.sync_directory().unwrap();
    let file = disk.open_durable("a").unwrap();
    file.write_durable(0, aligned(memory, 1)).unwrap();
    assert_eq!(disk.copy().power_loss(|| 0).contents("a").unwrap(), [1; 8192]);

    disk.fail_power_after(0);
    let mut other = Vec::new();
    file.write_durable(0, aligned(&mut other, 2)).unwrap_err();
    let mut numbers = [2u64, 1, 0].into_iter().chain(std::iter::repeat(1));
    let bytes = disk.power_loss(|| numbers.next().unwrap()).contents("a").unwrap();
    assert_eq!((bytes[511], bytes[512], bytes[1023], bytes[1024]), (1, 2, 2, 1));
}

#[test]
fn unaligned_durable_write_is_rejected() {
    let (disk, memory) = (MemoryDisk::new(), &mut Vec::new());
    disk.create("a").unwrap().write_at(0, &[0; 9000]).unwrap();
    let file = disk.open_durable("a").unwrap();
    let data = aligned(memory, 1);
    assert!(file.write_durable(512, &data[..4096]).is_err());
    assert!(file.write_durable(0, &data[..4000]).is_err());
    assert!(file.write_durable(0, &data[8..4104]).is_err());
    file.write_durable(8192, &data[..808]).unwrap();
    assert_eq!(file.block_bytes(), 4096);
    let buffered = MemoryDisk::with_block_bytes(1);
    buffered.create("a").unwrap();
    buffered.open_durable("a").unwrap().write_durable(3, &data[..5]).unwrap();
    assert_eq!(buffered.contents("a").unwrap(), [0, 0, 0, 1, 1, 1, 1, 1]);
}

#[test]
fn power_fails_after_the_set_count() {
    let disk = MemoryDisk::new();
    disk.fail_power_after(1);
    disk.create("a").unwrap();
    assert!(disk.create("b").is_err());
    assert!(disk.list().is_err());
}

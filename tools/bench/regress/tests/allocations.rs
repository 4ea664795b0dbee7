//! Allocations of operations, counted. The counts are exact and the same on every machine, so a count above the numbers
//! below is a regression; a change that lowers one updates its number.
// A global allocator requires `unsafe`; this one counts and forwards every call.
#![allow(unsafe_code)]

use archon_regress::{ALL, HotPath};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
}

struct CountingAllocator;

impl CountingAllocator {
    fn count(bytes: usize) {
        // While a thread ends its counters are gone, and not needed.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        let _ = BYTES.try_with(|count| count.set(count.get() + bytes as u64));
    }
}

// SAFETY: every call goes unchanged to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from the system's allocator, by `alloc` or `realloc`.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        Self::count(bytes);
        // SAFETY: as for `dealloc`; the caller keeps the contract of `realloc`.
        unsafe { System.realloc(at, layout, bytes) }
    }
}

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

/// Allowed allocations and bytes per operation, by path.
const ALLOWED: &[(&str, f64, f64)] = &[
    ("puts-to-node", 3.18, 995.0),
    ("evaluate-put", 11.01, 575.0),
    ("commit-at-two", 0.42, 775.0),
    ("write-rows", 9.17, 505.0),
    ("read-rows", 4.15, 525.0),
    ("scan-rows", 0.24, 296.0),
    ("values-to-client", 0.18, 325.0),
];

/// Returns allocations and bytes per operation, without setup.
fn per_operation(path: &HotPath) -> (f64, f64) {
    let counted = |operations: u64| {
        let before = (ALLOCATIONS.get(), BYTES.get());
        std::hint::black_box((path.run)(std::hint::black_box(operations)));
        (ALLOCATIONS.get() - before.0, BYTES.get() - before.1)
    };
    let (once, more) = (counted(6_400), counted(12_800));
    ((more.0 - once.0) as f64 / 6_400.0, (more.1 - once.1) as f64 / 6_400.0)
}

#[test]
fn no_path_exceeds_its_allowed_allocations() {
    let mut wrong = Vec::new();
    for path in &ALL {
        let allowed = ALLOWED.iter().find(|(name, ..)| *name == path.name);
        let (allocations, bytes) = per_operation(path);
        println!("{:<18} {allocations:>7.2} allocations, {bytes:>8.0} bytes per operation", path.name);
        match allowed {
            None => wrong.push(format!("{} has no limit", path.name)),
            Some((name, most, bytes_most)) if allocations > *most || bytes > *bytes_most => wrong.push(format!(
                "{name}: {allocations:.2} allocations of {bytes:.0} bytes per operation; {most} of {bytes_most} are allowed"
            )),
            Some(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The counter notices one additional allocation per operation.
#[test]
fn one_additional_allocation_is_noticed() {
    fn one_more(operations: u64) -> u64 {
        (0..operations).map(|number| *std::hint::black_box(Box::new(number))).sum()
    }
    let (allocations, bytes) = per_operation(&HotPath { name: "one more", run: one_more });
    assert!((allocations - 1.0).abs() < 1e-9 && (bytes - 8.0).abs() < 1e-9, "{allocations} of {bytes}");
}

//! The `archon` command. All code is in the library, so that tests can build their own binary from it.

use std::process::ExitCode;

/// Operations are allocated on one thread and freed on another, which is expensive with the system's allocator (ADR
/// 0017).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    archon_cli::main_with(std::env::args_os())
}

//! The `archon` command. Everything is in the library, so that tests can build a binary of their own from it.

use std::process::ExitCode;

/// Operations are allocated on one thread and freed on another, which the system's allocator pays for dearly (ADR 0017).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    archon_cli::main_with(std::env::args_os())
}

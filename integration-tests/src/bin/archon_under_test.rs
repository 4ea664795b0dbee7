//! The `archon` command, built beside the tests so that they always run the code of this checkout.

fn main() -> std::process::ExitCode {
    archon_cli::main_with(std::env::args_os())
}

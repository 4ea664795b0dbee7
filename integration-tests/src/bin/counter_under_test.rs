//! An instance of the service of `examples/src/counter/`, built beside the tests so that they always run the code of this checkout.

fn main() -> std::process::ExitCode {
    archon_examples::counter::serve(std::env::args_os().skip(1))
}

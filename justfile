# Short names for plain cargo commands; `just` lists them. Each works without `just` as it stands here.

# What there is.
default:
    @just --list

# Static checks: layers, words, documents, packaging. Builds nothing of the product; seconds.
tidy:
    cargo test -p archon-tidy --locked

# What a change must pass, as far as this machine allows; reads only. CI runs .ci/run, which skips nothing but programs of other
# languages that cannot be installed.
verify: tidy
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
    cargo test --workspace --locked

# Writes: formats, and takes what clippy offers.
fix:
    cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged
    cargo fmt --all

# All that CI runs, with root, on a Linux that lets it mount, trace and make network namespaces.
ci:
    .ci/run

# Unseen seeds, regressions, soak, advisories, the static program, the interface: 90 minutes. A failure is a finding for the next change.
nightly:
    .ci/nightly

# The package for Debian: target/debian/*.deb
deb:
    packaging/build deb

# A program that needs no libraries of the machine.
static:
    packaging/build static

# The crates, packed for publication: target/package/*.crate
crates:
    packaging/build crates

# One seed of the simulator again, with the end of its trace: just seed 89
seed number lines="200":
    cargo run --release -p archon-simulator --bin simulate -- --seed {{number}} --lines {{lines}}

# An example: just example counter
example name:
    cargo run --release -p {{if name == "zombies" { "archon-zombies" } else { "archon-examples" } }} --example {{name}}

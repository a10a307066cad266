//! The rules about the shape of the repository that no compiler checks, as tests.
//! Each rule looks at the whole tree and tells every offender at once. None may look at what the code does.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a rule that cannot look at the tree fails, and tells"
)]

mod arrows;
mod packaging;
mod sources;
mod tree;
mod units;

//! The runner's program: arguments in, exit code out.
fn main() {}

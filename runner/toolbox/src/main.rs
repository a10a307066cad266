//! Entry of the toolbox binary.
fn main() {}

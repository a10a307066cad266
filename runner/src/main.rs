//! The runner's program: arguments in, exit code out. Everything it prints, it prints here and in `cli`.

mod cli;

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(cli::Arguments::parse())
}

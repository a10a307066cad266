//! The program `checkfu`: the server and the operator's command line in one. All it does here is to call the latter.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}

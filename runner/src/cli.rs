//! The commands and what they print. A failure is one sentence on the error stream: what, why, what to do.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this is the command line")]

mod collect;
mod exit;
mod pair;
mod run;
mod show;

use checkfu_runner::{
    config,
    state::{self, State},
};
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use exit::{Exit, Failure};
use std::{num::NonZeroU32, path::PathBuf, process::ExitCode};

/// Runs agent sessions in Docker for a Checkfu control plane. It opens no port.
#[derive(Debug, Parser)]
#[command(name = "checkfu-runner", version, after_help = exit::HELP)]
pub(crate) struct Arguments {
    /// Where this runner keeps its identity and spools.
    #[arg(long, global = true, value_name = "DIR", env = "CHECKFU_RUNNER_STATE_DIR")]
    state_dir: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Redeem a pairing code, read from standard input or a file.
    Pair(Pair),
    /// Take work until told to stop.
    Run(Run),
    /// Show what the daemon of this state directory does.
    Status(Status),
    /// Remove sandboxes that no session of this runner holds. Their files are lost; stop the daemon first.
    Gc(Gc),
    /// Forget this runner's identity. Revoke it at the control plane as well.
    Unpair,
    /// Print the version.
    Version,
    /// Print a completion script for a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
struct Pair {
    /// The control plane's address, such as https://checkfu.example.com.
    #[arg(long, value_name = "URL")]
    plane: String,
    /// A name for people; the host name when absent.
    #[arg(long)]
    name: Option<String>,
    /// A label that environments may ask for; may be repeated.
    #[arg(long = "label", value_name = "L")]
    labels: Vec<String>,
    /// Read the code from this file instead of standard input.
    #[arg(long, value_name = "FILE")]
    code_file: Option<PathBuf>,
    /// A certificate authority to trust besides the public ones.
    #[arg(long, value_name = "FILE", env = "CHECKFU_RUNNER_CA")]
    ca: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Run {
    /// How many sessions run at once, at most what the pairing allows.
    #[arg(long, value_name = "N", env = "CHECKFU_RUNNER_MAX_SESSIONS")]
    max_sessions: Option<NonZeroU32>,
    /// The static checkfu-toolbox that runs inside sandboxes.
    #[arg(long, value_name = "FILE", env = "CHECKFU_RUNNER_TOOLBOX")]
    toolbox: Option<PathBuf>,
    /// The image for environments that name none.
    #[arg(long, value_name = "REF", env = "CHECKFU_RUNNER_IMAGE")]
    image: Option<String>,
    /// Another OCI runtime that Docker knows, such as runsc.
    #[arg(long, value_name = "NAME", env = "CHECKFU_RUNNER_RUNTIME")]
    runtime: Option<String>,
    /// Run sandboxes even where the host enforces no memory or process limits.
    #[arg(long, env = "CHECKFU_RUNNER_ACCEPT_MISSING_LIMITS")]
    accept_missing_limits: bool,
    /// A private address that sandboxes may reach when their environment lists the host; may be repeated.
    #[arg(long = "reach", value_name = "ADDRESS")]
    reach: Vec<std::net::IpAddr>,
    /// A certificate authority to trust besides the public ones.
    #[arg(long, value_name = "FILE", env = "CHECKFU_RUNNER_CA")]
    ca: Option<PathBuf>,
    /// A label that environments may ask for; may be repeated.
    #[arg(long = "label", value_name = "L")]
    labels: Vec<String>,
    /// Take no work while less than this is free on the disk of the state directory.
    #[arg(long, value_name = "MIB", default_value_t = 512, env = "CHECKFU_RUNNER_MIN_FREE_MIB")]
    min_free_mib: u64,
    /// How long the first signal waits for running turns, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 240, env = "CHECKFU_RUNNER_DRAIN_SECONDS")]
    drain_seconds: u64,
}

#[derive(Debug, Args)]
struct Status {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Gc {
    /// Only tell what would go.
    #[arg(long)]
    dry_run: bool,
}

/// Runs one command.
pub(crate) fn main(arguments: Arguments) -> ExitCode {
    let outcome = match arguments.command {
        Command::Version => {
            println!("checkfu-runner {}", env!("CARGO_PKG_VERSION"));
            Ok(Exit::Success)
        }
        Command::Completions { shell } => {
            let mut command = Arguments::command();
            clap_complete::generate(shell, &mut command, "checkfu-runner", &mut std::io::stdout());
            Ok(Exit::Success)
        }
        command => {
            let path = arguments.state_dir.unwrap_or_else(config::default_state_dir);
            State::open(&path).map_err(Failure::from).and_then(|state| match command {
                Command::Pair(pair) => pair::main(&state, pair),
                Command::Run(run) => run::main(state, run),
                Command::Status(status) => show::main(&state, &status),
                Command::Gc(gc) => collect::main(&state, &gc),
                Command::Unpair => unpair(&state),
                Command::Version | Command::Completions { .. } => Ok(Exit::Success),
            })
        }
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => {
            eprintln!("checkfu-runner: {}", failure.message);
            failure.exit.into()
        }
    }
}

fn unpair(state: &State) -> Result<Exit, Failure> {
    let _lock = lock(state)?;
    state.remove(checkfu_runner::identity::FILE)?;
    println!(
        "This runner has forgotten its identity. Revoke it at the control plane too, if it still exists there."
    );
    Ok(Exit::Success)
}

fn lock(state: &State) -> Result<state::Lock, Failure> {
    Ok(state.lock()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_takes_no_code() {
        Arguments::command().debug_assert();
        let pair = ["checkfu-runner", "pair", "--plane", "https://x", "--code", "ABCD-EFGH-JKLM"];
        assert!(
            Arguments::try_parse_from(pair).is_err(),
            "arguments are visible to everybody on the machine"
        );
        assert!(Arguments::try_parse_from(["checkfu-runner", "run", "--max-sessions", "0"]).is_err());
    }
}

//! The commands and what they print. A failure is one sentence on the error stream: what, why, what to do.

#[macro_use]
mod print;

mod collect;
mod configuration;
mod doctor;
mod exit;
mod given;
mod once;
mod pair;
mod run;
mod show;
mod unpair;

use checkfu_runner::{
    config,
    control::{self, Answer, Ask},
    state::{self, State},
};
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use exit::{Exit, Failure};
use given::Given;
use std::{path::PathBuf, process::ExitCode};

/// Runs agent sessions in Docker for a Checkfu control plane. It opens no port.
#[derive(Debug, Parser)]
#[command(name = "checkfu-runner", version, after_help = exit::HELP)]
pub(crate) struct Arguments {
    /// The configuration file [default: the user's runner.toml, else /etc/checkfu/runner.toml]
    #[arg(long, global = true, value_name = "FILE", env = "CHECKFU_RUNNER_CONFIG")]
    config: Option<PathBuf>,
    /// Where this runner keeps its identity and spools.
    #[arg(long, global = true, value_name = "DIR")]
    state_dir: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Redeem a pairing code, read from standard input or a file.
    Pair(Pair),
    /// Take work until told to stop.
    Run {
        #[command(flatten)]
        once: once::Once,
        #[command(flatten)]
        given: Given,
    },
    /// Show the settings and where each comes from.
    #[command(subcommand)]
    Config(Configuration),
    /// Show what the daemon of this state directory does.
    Status(Status),
    /// Take no more work, also after a restart; what runs goes on.
    Drain,
    /// Take work again.
    Undrain,
    /// Remove sandboxes that no session of this runner holds. Their files are lost.
    Gc(Gc),
    /// Have the control plane revoke this runner, and leave nothing of it here. Stop the daemon first.
    Unpair(Unpair),
    /// Look at everything a runner depends on and say what to do.
    Doctor {
        #[command(flatten)]
        doctor: doctor::Examination,
        #[command(flatten)]
        given: Given,
    },
    /// Say where the daemon's log is.
    Logs,
    /// Print the version.
    Version,
    /// Write the manual pages into a directory.
    #[command(hide = true)]
    Manual {
        /// Where to.
        directory: PathBuf,
    },
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
    /// A certificate authority to trust besides the public ones; give it to `run` as well.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Configuration {
    /// Print every effective setting with its source.
    Show {
        /// As JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        given: Given,
    },
    /// Print a file with every setting explained and commented out.
    Example,
}

#[derive(Debug, Args)]
struct Status {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Unpair {
    /// Forget it here only, because the control plane is gone.
    #[arg(long)]
    local: bool,
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
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "checkfu-runner", &mut script);
            print::out(&script);
            Ok(Exit::Success)
        }
        Command::Manual { directory } => clap_mangen::generate_to(Arguments::command(), &directory)
            .map(|()| Exit::Success)
            .map_err(|error| {
                let message = format!("{} cannot be written to: {error}", directory.display());
                Failure::new(Exit::Failure, message)
            }),
        Command::Logs => Ok(show::logs()),
        command => with_settings(arguments.config.as_deref(), arguments.state_dir, command),
    };
    match outcome.and_then(|exit| print::failed().map_or(Ok(exit), Err)) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            eprintln!("checkfu-runner: {}", failure.message);
            failure.exit.into()
        }
    }
}

fn with_settings(
    file: Option<&std::path::Path>,
    state_dir: Option<String>,
    command: Command,
) -> Result<Exit, Failure> {
    let given = match &command {
        Command::Run { given, .. }
        | Command::Config(Configuration::Show { given, .. })
        | Command::Doctor { given, .. } => given.clone(),
        _ => Given::default(),
    };
    if let Command::Config(Configuration::Example) = command {
        print!("{}", config::keys::TABLE.example());
        return Ok(Exit::Success);
    }
    let (settings, file) = given.settled(file, state_dir)?;
    if let Command::Config(Configuration::Show { json, .. }) = command {
        return Ok(configuration::show(&settings, file.as_deref(), json));
    }
    let path = settings.path("state_dir").unwrap_or_else(config::default_state_dir);
    if let Command::Doctor { doctor, .. } = &command {
        return doctor::main(&path, &settings, doctor);
    }
    if let Command::Run { once, .. } = &command
        && let Some(wait) = once.wait()
    {
        return once::main(&settings, once, wait);
    }
    let state = State::open(&path)?;
    match command {
        Command::Pair(pair) => pair::main(&state, &settings, pair),
        Command::Run { .. } => run::main(state, &settings, None),
        Command::Status(status) => show::main(&state, &status),
        Command::Gc(gc) => collect::main(&state, &settings, &gc),
        Command::Drain => show::drain(&state, true),
        Command::Undrain => show::drain(&state, false),
        Command::Unpair(unpair) => unpair::main(&state, &settings, &unpair),
        Command::Config(_)
        | Command::Doctor { .. }
        | Command::Version
        | Command::Completions { .. }
        | Command::Manual { .. }
        | Command::Logs => Ok(Exit::Success),
    }
}

/// Asks the running daemon; `None` when none listens.
fn asked(state: &State, ask: &Ask) -> Result<Option<Answer>, Failure> {
    control::ask(state, ask).map_err(|error| {
        let message = format!("the running daemon does not answer: {error}; its log may tell why");
        Failure::new(Exit::Failure, message)
    })
}

fn unexpected(answer: &Answer) -> Failure {
    match answer {
        Answer::Refused { why } => Failure::new(Exit::Failure, why),
        _ => Failure::new(Exit::Failure, "the running daemon is of another version; restart it"),
    }
}

/// For commands that wait for a few answers.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failure, format!("the system gives no event queue: {error}")))
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
    }
}

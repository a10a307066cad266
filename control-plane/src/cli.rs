//! The operator's command line: what can be asked, and with which key of which server. It decides nothing; every command
//! is a request to the public API, or starts the server, or reads a data directory.
//! No secret is ever taken from the arguments, since other users of the machine can read those.

mod agents;
mod approvals;
mod audit;
mod budgets;
mod client;
mod doctor;
mod environments;
mod exit;
mod export;
mod failure;
mod files;
mod follow;
mod keys;
mod permissions;
mod providers;
mod routes;
mod run;
mod runners;
mod serve;
mod sessions;
mod shape;
mod terminal;
mod transcript;
mod verify;

use checkfu_shared::secret::Secret;
use clap::{CommandFactory, Parser, Subcommand, error::ErrorKind};
use client::Client;
use exit::Exit;
use failure::Failure;
use std::{env, fs, io, io::Write, path::Path, process::ExitCode, time::Duration};
use terminal::Output;

/// Where a server is, unless told otherwise.
const DEFAULT_URL: &str = "http://127.0.0.1:8321";

/// How long blocking work may hold up the end of a server that was told to stop.
const SHUTDOWN_MAX: Duration = Duration::from_secs(2);

/// Run AI agents in sandboxes on machines you control.
#[derive(Debug, Parser)]
#[command(name = "checkfu", version, after_help = Exit::HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Print JSON, for scripts
    #[arg(long, global = true)]
    json: bool,
    /// The server's address; the key comes from CHECKFU_API_KEY or the file CHECKFU_API_KEY_FILE
    #[arg(long, global = true, env = "CHECKFU_URL", default_value = DEFAULT_URL)]
    url: String,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Look at what a server on this machine stands on and what can be reached, and say what to do
    Doctor(doctor::Doctor),
    /// Run the server
    Serve(serve::Serve),
    /// Check that what a server stored follows from its log
    Verify(verify::Verify),
    /// Write a session's log to a file that proves itself, or check one
    #[command(subcommand)]
    Export(export::Command),
    #[command(flatten)]
    Remote(Remote),
    /// Write the manual pages into a directory
    #[command(hide = true)]
    Manual {
        /// Where to
        directory: std::path::PathBuf,
    },
    /// Print a script that completes this command line in a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// What is asked of a server.
#[derive(Debug, Subcommand)]
enum Remote {
    /// Make a session for one message and follow it until it is idle
    Run(run::Run),
    /// Make, list and show agents
    #[command(subcommand)]
    Agents(agents::Command),
    /// Make, list and show environments
    #[command(subcommand)]
    Environments(environments::Command),
    /// Make, follow and steer sessions
    #[command(subcommand)]
    Sessions(sessions::Command),
    /// List and get the files that sessions left
    #[command(subcommand)]
    Files(files::Command),
    /// Mint a code that makes a machine a runner
    Pair(runners::Pair),
    /// List, show, revoke and drain runners
    #[command(subcommand)]
    Runners(runners::Command),
    /// Add, list, test and remove model providers
    #[command(subcommand)]
    Providers(providers::Command),
    /// Make, list and remove model routes
    #[command(subcommand)]
    Routes(routes::Command),
    /// Give, list, raise and pause the budgets of sessions
    #[command(subcommand)]
    Budgets(budgets::Command),
    /// Make, list and revoke API keys
    #[command(subcommand)]
    Keys(keys::Command),
    /// List, show and answer tool calls that wait for somebody
    #[command(subcommand)]
    Approvals(approvals::Command),
    /// List, grant and revoke permissions
    #[command(subcommand)]
    Permissions(permissions::Command),
    /// List who did what, and check the record
    #[command(subcommand)]
    Audit(audit::Command),
}

/// Reads the arguments, does what they say, and ends with one of [`Exit`]'s codes.
pub(crate) fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return parse_failed(&error),
    };
    let output = Output { is_json: arguments.json };
    match dispatch(arguments, &output) {
        Ok(()) => Exit::Fine.into(),
        Err(failure) => {
            report(&failure);
            failure.exit.into()
        }
    }
}

fn parse_failed(error: &clap::Error) -> ExitCode {
    // Help and version are an answer, not an error; a reader that is gone has no use for either.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Fine.into(),
        _ => Exit::Usage.into(),
    }
}

fn report(failure: &Failure) {
    if !failure.message.is_empty() {
        // There is nowhere left to say that standard error is closed.
        let _ = writeln!(io::stderr(), "checkfu: {}", failure.shown());
    }
}

fn dispatch(arguments: Arguments, output: &Output) -> Result<(), Failure> {
    match arguments.command {
        Command::Completions { shell } => completions(shell, output),
        Command::Manual { directory } => {
            clap_mangen::generate_to(Arguments::command(), &directory).map_err(|error| {
                Failure::local(format!("{} cannot be written to: {error}.", directory.display()))
            })
        }
        Command::Doctor(args) => {
            let client = Client::new(&arguments.url, api_key()?.as_ref())?;
            runtime(false)?.block_on(doctor::doctor(args, &client, output))
        }
        Command::Serve(args) => {
            let runtime = runtime(true)?;
            let served = runtime.block_on(serve::serve(args, output));
            runtime.shutdown_timeout(SHUTDOWN_MAX);
            served
        }
        Command::Verify(args) => runtime(false)?.block_on(verify::verify(args, output)),
        Command::Export(export::Command::Verify(args)) => export::verify(&args, output),
        Command::Export(export::Command::Session(args)) => {
            let client = Client::new(&arguments.url, api_key()?.as_ref())?;
            runtime(false)?.block_on(export::run(args, &client, output))
        }
        Command::Remote(command) => runtime(false)?.block_on(remote(command, &arguments.url, output)),
    }
}

async fn remote(command: Remote, url: &str, output: &Output) -> Result<(), Failure> {
    let client = Client::new(url, api_key()?.as_ref())?;
    match command {
        Remote::Run(args) => run::run(args, &client, output).await,
        Remote::Agents(command) => agents::run(command, &client, output).await,
        Remote::Environments(command) => environments::run(command, &client, output).await,
        Remote::Sessions(command) => sessions::run(command, &client, output).await,
        Remote::Files(command) => files::run(command, &client, output).await,
        Remote::Pair(args) => runners::pair(args, &client, output).await,
        Remote::Runners(command) => runners::run(command, &client, output).await,
        Remote::Providers(command) => providers::run(command, &client, output).await,
        Remote::Routes(command) => routes::run(command, &client, output).await,
        Remote::Budgets(command) => budgets::run(command, &client, output).await,
        Remote::Keys(command) => keys::run(command, &client, output).await,
        Remote::Approvals(command) => approvals::run(command, &client, output).await,
        Remote::Permissions(command) => permissions::run(command, &client, output).await,
        Remote::Audit(command) => audit::run(command, &client, output).await,
    }
}

fn runtime(is_server: bool) -> Result<tokio::runtime::Runtime, Failure> {
    let mut builder = if is_server {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    builder
        .enable_all()
        .build()
        .map_err(|error| Failure::local(format!("The program cannot start: {error}.")))
}

fn completions(shell: clap_complete::Shell, output: &Output) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "checkfu", &mut script);
    output.bytes(&script)
}

/// The API key from the environment, if there is one. Without a key the server is asked all the same and says so.
fn api_key() -> Result<Option<Secret>, Failure> {
    if let Some(key) = env::var("CHECKFU_API_KEY").ok().filter(|key| !key.trim().is_empty()) {
        return Ok(Some(Secret::new(key.trim())));
    }
    match env::var_os("CHECKFU_API_KEY_FILE") {
        Some(file) if !file.is_empty() => secret_file(Path::new(&file), "the API key").map(Some),
        _ => Ok(None),
    }
}

/// Reads a secret from its file, without the line end that editors add.
fn secret_file(file: &Path, what: &str) -> Result<Secret, Failure> {
    /// No secret is larger; a wrong path must not fill the memory.
    const BYTES_MAX: u64 = 16 << 10;
    let failed = |why: String| {
        Failure::usage(format!("The file {} with {what} cannot be used: {why}.", file.display()))
    };
    let size = fs::metadata(file).map_err(|error| failed(error.to_string()))?.len();
    if size > BYTES_MAX {
        return Err(failed("it is too large for a key".to_owned()));
    }
    let text = fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    if text.trim().is_empty() {
        return Err(failed("it is empty".to_owned()));
    }
    Ok(Secret::new(text.trim()))
}

#[cfg(test)]
mod tests;

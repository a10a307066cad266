//! The scripted model as a program, for the quickstart and for tests that run real processes.
//! Its ready line on standard output is `listening on http://ADDRESS`; it runs until it is told to stop.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use rig::scripted_model::{ScriptedModel, Settings, demo, script::Script};

/// Serves a scripted model over the Anthropic Messages wire.
#[derive(Debug, Parser)]
#[command(name = "scripted-model", version)]
struct Arguments {
    /// Address to listen on; port 0 picks a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// A script file, or the built-in script `demo`. A user text may carry its own: `script: [...]`.
    #[arg(long, default_value = "demo")]
    script: String,
    /// The only accepted x-api-key, read from this file; any key is accepted without it.
    #[arg(long)]
    key_file: Option<PathBuf>,
    /// Refuse requests counted above this many tokens.
    #[arg(long, default_value_t = 200_000)]
    context_window_tokens: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            // Standard error may be closed; there is nowhere left to complain then.
            let _ = writeln!(std::io::stderr(), "scripted-model: {sentence}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), String> {
    let script = match arguments.script.as_str() {
        "demo" => demo::script().map_err(|error| error.to_string())?,
        path => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| format!("cannot read script {path}: {error}"))?;
            Script::read(&text).map_err(|error| format!("cannot use script {path}: {error}"))?
        }
    };
    let key = match &arguments.key_file {
        None => None,
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| format!("cannot read the key file {}: {error}", path.display()))?;
            Some(text.trim().to_owned())
        }
    };
    let settings = Settings {
        listen: arguments.listen,
        script,
        key,
        context_window_tokens: arguments.context_window_tokens,
    };
    let model = ScriptedModel::start(settings)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", arguments.listen))?;
    let mut output = std::io::stdout();
    writeln!(output, "listening on {}", model.url())
        .and_then(|()| output.flush())
        .map_err(|error| format!("cannot print the address: {error}"))?;
    model.serve_forever().await.map_err(|error| format!("the server ended: {error}"))
}

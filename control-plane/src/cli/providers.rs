//! `checkfu providers`: who answers model requests. Keys come from a file or standard input, never from the arguments.

use super::{
    client::Client,
    exit::Exit,
    failure::Failure,
    secret_file,
    shape::{self, Members},
    terminal::{self, Output},
};
use checkfu_shared::{id::ProviderId, secret::Secret};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};
use std::{
    io::{self, Read},
    path::PathBuf,
};

const COLUMNS: Members = &[
    ("ID", "/id"),
    ("NAME", "/name"),
    ("KIND", "/kind"),
    ("ADDRESS", "/base_url"),
    ("KEY", "/has_key"),
    ("CREATED", "/created_at"),
];
const FIELDS: Members = &[
    ("id", "/id"),
    ("name", "/name"),
    ("kind", "/kind"),
    ("address", "/base_url"),
    ("private", "/allow_private"),
    ("has key", "/has_key"),
    ("key set", "/key_set_at"),
    ("created", "/created_at"),
    ("archived", "/archived_at"),
];

/// What to do with providers.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Add a provider
    Add(Add),
    /// List providers
    List {
        /// Show at most this many
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Ask a provider for its models, to see whether its address and its key are good
    Test {
        /// The provider's id
        provider: ProviderId,
    },
    /// Give a provider another key
    SetKey {
        /// The provider's id
        provider: ProviderId,
        /// A file with the key; without it the key is read from standard input
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
    },
    /// Remove a provider and forget its key
    Remove {
        /// The provider's id
        provider: ProviderId,
    },
    /// Put a fresh master key in the place of the present one and seal every key anew
    RotateMasterKey,
}

/// `providers add`.
#[derive(Debug, Args)]
pub(crate) struct Add {
    /// A name, not used yet
    #[arg(long)]
    name: String,
    /// What it speaks
    #[arg(long)]
    kind: Kind,
    /// Its address: for `anthropic` before /v1/messages [default: Anthropic's], else before /chat/completions
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// A file with its key; `-` reads standard input; without this option it has none
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// It may lie in a private network, or on the server's own machine
    #[arg(long)]
    allow_private: bool,
}

/// What a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Anthropic Messages
    Anthropic,
    /// OpenAI Chat Completions: OpenAI, vLLM, Ollama, llama.cpp and others
    #[value(name = "openai_compatible", alias = "openai-compatible")]
    OpenaiCompatible,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenaiCompatible => "openai_compatible",
        }
    }
}

/// Runs one of the commands.
pub(crate) async fn run(command: Command, client: &Client, output: &Output) -> Result<(), Failure> {
    match command {
        Command::Add(args) => {
            let mut body = Map::new();
            body.insert("name".to_owned(), args.name.into());
            body.insert("kind".to_owned(), args.kind.as_str().into());
            body.insert("allow_private".to_owned(), args.allow_private.into());
            body.extend(args.base_url.map(|url| ("base_url".to_owned(), url.into())));
            if let Some(file) = args.key_file {
                let key = if file.as_os_str() == "-" { from_input()? } else { key_of(&file)? };
                body.insert("key".to_owned(), key.reveal().into());
            }
            let made = client.post("/v1/providers", &body).await?;
            if output.is_json { output.json(&made) } else { output.text(&shape::lines(&made, FIELDS)) }
        }
        Command::List { limit } => {
            let rows = client.list("/v1/providers", &[], limit).await?;
            if output.is_json {
                return output.json(&rows);
            }
            output.table(&shape::head(COLUMNS), &shape::rows(&rows, COLUMNS), "There are no providers.")
        }
        Command::Test { provider } => {
            let reply = client.post(&format!("/v1/providers/{provider}/test"), &json!({})).await?;
            tested(&reply, output)
        }
        Command::SetKey { provider, key_file } => {
            let key = key_file.map_or_else(from_input, |file| key_of(&file))?;
            let body = json!({"key": key.reveal()});
            let reply = client.post(&format!("/v1/providers/{provider}"), &body).await?;
            done(&reply, "The key is replaced.", output)
        }
        Command::Remove { provider } => {
            let reply = client.post(&format!("/v1/providers/{provider}/archive"), &json!({})).await?;
            done(&reply, "The provider is removed and its key is forgotten.", output)
        }
        Command::RotateMasterKey => {
            let reply = client.post("/v1/providers/rotate-master-key", &json!({})).await?;
            let resealed = shape::text(&reply, "/resealed");
            done(&reply, &format!("The master key is new; {resealed} keys are sealed anew."), output)
        }
    }
}

fn key_of(file: &std::path::Path) -> Result<Secret, Failure> {
    secret_file(file, "the provider's key")
}

fn from_input() -> Result<Secret, Failure> {
    /// No key is larger.
    const BYTES_MAX: u64 = 16 << 10;
    let mut text = String::new();
    io::stdin()
        .take(BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error| Failure::usage(format!("The key cannot be read from standard input: {error}.")))?;
    let key = Secret::new(text.trim());
    if key.reveal().is_empty() {
        return Err(Failure::usage(
            "Standard input has no key. Pipe it in, or name its file with --key-file.",
        ));
    }
    Ok(key)
}

/// A test that failed ends the program with the code for it.
fn tested(reply: &Value, output: &Output) -> Result<(), Failure> {
    let ok = reply.get("ok").and_then(Value::as_bool) == Some(true);
    if output.is_json {
        output.json(reply)?;
        return if ok { Ok(()) } else { Err(Failure::new(Exit::Failed, String::new())) };
    }
    if !ok {
        return Err(Failure::new(Exit::Failed, shape::text(reply, "/problem/message")));
    }
    let models = shape::text(reply, "/models");
    let known = if models.is_empty() {
        String::new()
    } else {
        format!(" It has {} models.", terminal::line(&models))
    };
    output.line(&format!("The provider is reached and takes the key.{known}"))
}

fn done(reply: &Value, words: &str, output: &Output) -> Result<(), Failure> {
    if output.is_json { output.json(reply) } else { output.line(words) }
}

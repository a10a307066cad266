//! `checkfu serve`: flags, environment and file into one configuration, then the server until it is told to stop.
//! The provider's key comes from a file or the environment, never from the arguments.

mod notify;

use super::{exit::Exit, failure::Failure, secret_file, terminal::Output};
use checkfu::{
    config::{Config, Tls},
    dial,
};
use checkfu_shared::{protocol::Tempo, secret::Secret, time::SystemClock};
use clap::{Args, ValueEnum};
use serde::Deserialize;
use std::{
    env, fs, io,
    io::IsTerminal,
    net::SocketAddr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

const DEFAULT_LISTEN: &str = "127.0.0.1:8321";

/// `serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Where to listen [default: 127.0.0.1:8321]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// A file with the server's certificate chain in PEM; with --tls-key the server speaks HTTPS
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// A file with the certificate's private key in PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Listen beyond this machine without TLS, where keys and code can be read on the way
    #[arg(long)]
    plain_http: bool,
    /// Where everything durable lives [default: the user's data directory for checkfu]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The model provider [default: https://api.anthropic.com]
    #[arg(long, env = "CHECKFU_MODEL_BASE_URL", value_name = "URL")]
    model_base_url: Option<String>,
    /// A file with the provider's key; without one the key is taken from CHECKFU_MODEL_KEY
    #[arg(long, value_name = "FILE")]
    model_key_file: Option<PathBuf>,
    /// The share of a model's window, in percent, at which a conversation is summed up; 0 means never [default: 80]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    compact_at_percent: Option<u8>,
    /// How fast runners go: a JSON object or a file with one, for tests
    #[arg(long, value_name = "JSON|FILE")]
    tempo: Option<String>,
    /// A TOML file, or with the ending .json a JSON one, with any of the settings above, named with underscores
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Answer /live, /ready and /metrics on this loopback address
    #[arg(long, env = "CHECKFU_METRICS", value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// How log lines look on standard error; CHECKFU_LOG sets what is logged
    #[arg(long, default_value = "text")]
    log_format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// The settings that a file may hold.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileSettings {
    listen: Option<String>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    plain_http: Option<bool>,
    data_dir: Option<PathBuf>,
    model_base_url: Option<String>,
    model_key_file: Option<PathBuf>,
    compact_at_percent: Option<u8>,
    tempo: Option<TempoText>,
    metrics: Option<SocketAddr>,
}

/// A tempo; unlike on the wire, a member nobody knows is a mistake here.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TempoText {
    poll_wait_ms: Option<u64>,
    renew_ms: Option<u64>,
    directives_wait_ms: Option<u64>,
    lease_ms: Option<u64>,
    freeze_margin_ms: Option<u64>,
    offer_ms: Option<u64>,
    affinity_ms: Option<u64>,
    keep_ms: Option<u64>,
    error_backoff_min_ms: Option<u64>,
    error_backoff_max_ms: Option<u64>,
}

impl From<TempoText> for Tempo {
    fn from(given: TempoText) -> Self {
        let usual = Self::default();
        Self {
            poll_wait_ms: given.poll_wait_ms.unwrap_or(usual.poll_wait_ms),
            renew_ms: given.renew_ms.unwrap_or(usual.renew_ms),
            directives_wait_ms: given.directives_wait_ms.unwrap_or(usual.directives_wait_ms),
            lease_ms: given.lease_ms.unwrap_or(usual.lease_ms),
            freeze_margin_ms: given.freeze_margin_ms.unwrap_or(usual.freeze_margin_ms),
            offer_ms: given.offer_ms.unwrap_or(usual.offer_ms),
            affinity_ms: given.affinity_ms.unwrap_or(usual.affinity_ms),
            keep_ms: given.keep_ms.unwrap_or(usual.keep_ms),
            error_backoff_min_ms: given.error_backoff_min_ms.unwrap_or(usual.error_backoff_min_ms),
            error_backoff_max_ms: given.error_backoff_max_ms.unwrap_or(usual.error_backoff_max_ms),
        }
    }
}

/// All that a start needs.
struct Start {
    listen: String,
    plain_http: bool,
    config: Config,
}

/// Serves until SIGTERM or SIGINT; a second signal does not wait for what is under way.
pub(crate) async fn serve(args: Serve, output: &Output) -> Result<(), Failure> {
    log_to_stderr(args.log_format);
    let file = args.config.as_deref().map(read_settings).transpose()?.unwrap_or_default();
    let Start { listen, plain_http, config } = start(args, file, environment_key())?;
    if config.model_key.is_none() {
        tracing::warn!(
            "no key of a model provider is given, so no turn can ask a model: use --model-key-file or CHECKFU_MODEL_KEY"
        );
    }
    let listener = TcpListener::bind(&listen).await.map_err(|error| cannot_listen(&listen, &error))?;
    let address = listener
        .local_addr()
        .map_err(|error| Failure::local(format!("The address listened on is not known: {error}.")))?;
    refuse_open_plain(address, config.tls.is_some(), plain_http)?;
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let key_file = config.data_dir.join(checkfu::KEY_FILE);
    let is_first = !key_file.exists();
    let (mut terminate, mut interrupt) = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
    let stop = CancellationToken::new();
    let (ready, is_ready) = oneshot::channel();
    let serving = checkfu::serve_and_tell(config, listener, Arc::new(SystemClock), stop.clone(), ready);
    let mut serving = std::pin::pin!(serving);
    // Said only now: who reads the line may read the key of the first start next.
    tokio::select! {
        ended = &mut serving => return ended.map_err(|error| did_not_serve(&error)),
        Ok(()) = is_ready => {}
    }
    output.line(&format!("listening on {scheme}://{address}"))?;
    if is_first && io::stdout().is_terminal() {
        let key = secret_file(&key_file, "the owner's key")?;
        output.line(&format!(
            "the owner's API key, shown this once and kept in {}: {}",
            key_file.display(),
            key.reveal()
        ))?;
    }
    notify::ready();
    tokio::select! {
        () = notify::watchdog() => {}
        ended = &mut serving => return ended.map_err(|error| did_not_serve(&error)),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    notify::stopping();
    tracing::info!("stopping; a second signal does not wait for what is under way");
    stop.cancel();
    tokio::select! {
        ended = &mut serving => ended.map_err(|error| did_not_serve(&error)),
        _ = terminate.recv() => Err(Failure::local("Stopped without waiting for what was under way.")),
        _ = interrupt.recv() => Err(Failure::local("Stopped without waiting for what was under way.")),
    }
}

/// Keys and code must not cross a network that others can read, unless the operator says so by name.
fn refuse_open_plain(address: SocketAddr, has_tls: bool, plain_http: bool) -> Result<(), Failure> {
    if address.ip().to_canonical().is_loopback() || has_tls || plain_http {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{address} can be reached from other machines and there is no certificate. Give --tls-cert and --tls-key, listen on 127.0.0.1 behind a proxy, or say --plain-http if the network is yours alone."
    )))
}

fn on(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::local(format!("Signals cannot be received: {error}.")))
}

/// Flags and environment go before the file, the file before the defaults.
fn start(args: Serve, file: FileSettings, environment_key: Option<Secret>) -> Result<Start, Failure> {
    let data_dir = match args.data_dir.or(file.data_dir) {
        Some(dir) => dir,
        None => default_data_dir()?,
    };
    let key_file = args.model_key_file.or(file.model_key_file);
    let model_key = match key_file {
        Some(file) => {
            let key = secret_file(&file, "the model provider's key")?;
            if is_exposed(&file) {
                tracing::warn!(file = %file.display(), "other users can read the model provider's key: chmod 600 it");
            }
            Some(key)
        }
        None => environment_key.or_else(credential),
    };
    let tempo = args.tempo.as_deref().map(read_tempo).transpose()?.or(file.tempo);
    let mut config = Config::new(data_dir);
    config.model_key = model_key;
    config.master_keys = master_keys();
    if let Some(percent) = args.compact_at_percent.or(file.compact_at_percent) {
        config.compact_at_percent = percent.min(100);
    }
    config.tempo = tempo.unwrap_or_default().into();
    config.metrics = args.metrics.or(file.metrics);
    if config.metrics.is_some_and(|address| !address.ip().is_loopback()) {
        return Err(Failure::usage(
            "Metrics are only answered on a loopback address, such as 127.0.0.1:9481. Put a proxy in front of it if others must read it.",
        ));
    }
    if let Some(url) = args.model_base_url.or(file.model_base_url) {
        dial::base(&url)
            .map_err(|error| Failure::usage(format!("--model-base-url {url} cannot be used: {error}.")))?;
        config.model_base_url = url;
    }
    config.tls = match (args.tls_cert.or(file.tls_cert), args.tls_key.or(file.tls_key)) {
        (Some(cert_file), Some(key_file)) => Some(Tls { cert_file, key_file }),
        (None, None) => None,
        _ => return Err(Failure::usage("TLS needs both --tls-cert and --tls-key. Give the other one too.")),
    };
    let plain_http = args.plain_http || file.plain_http.unwrap_or(false);
    let listen = args.listen.or(file.listen).unwrap_or_else(|| DEFAULT_LISTEN.to_owned());
    Ok(Start { listen, plain_http, config })
}

/// The key that systemd hands over; its unit has an empty one where nobody set any.
fn credential() -> Option<Secret> {
    let file = PathBuf::from(env::var_os("CREDENTIALS_DIRECTORY")?).join("model.key");
    secret_file(&file, "the model provider's key").ok()
}

/// Whether others than the owner may read the file.
fn is_exposed(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|found| found.mode() & 0o077 != 0)
}

fn environment_key() -> Option<Secret> {
    secret_of("CHECKFU_MODEL_KEY")
}

/// The key that seals, and the one that sealed before it, whose seals are made anew at the start.
fn master_keys() -> Vec<Secret> {
    let Some(key) = secret_of("CHECKFU_MASTER_KEY") else { return Vec::new() };
    std::iter::once(key).chain(secret_of("CHECKFU_MASTER_KEY_PREVIOUS")).collect()
}

fn secret_of(variable: &str) -> Option<Secret> {
    let text = env::var(variable).ok()?;
    Some(Secret::new(text.trim())).filter(|secret| !secret.reveal().is_empty())
}

/// The directory that `serve` uses when none is given.
pub(crate) fn default_data_dir() -> Result<PathBuf, Failure> {
    directories::ProjectDirs::from("", "", "checkfu").map(|dirs| dirs.data_dir().to_owned()).ok_or_else(
        || Failure::usage("There is no home directory to keep data in. Say where with --data-dir."),
    )
}

fn read_settings(file: &Path) -> Result<FileSettings, Failure> {
    let failed = |why: String| {
        Failure::usage(format!("The configuration file {} cannot be used: {why}.", file.display()))
    };
    let text = fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    let parsed = if file.extension().is_some_and(|extension| extension == "json") {
        serde_json::from_str(&text).map_err(|error| error.to_string())
    } else {
        toml::from_str(&text).map_err(|error| error.message().to_owned())
    };
    parsed.map_err(|why| failed(with_suggestion(&why)))
}

/// Adds the nearest name to a complaint about one that nobody knows.
fn with_suggestion(why: &str) -> String {
    let mut quoted = why.split('`').skip(1).step_by(2);
    let Some(unknown) = quoted.next().filter(|_| why.contains("unknown field")) else {
        return why.to_owned();
    };
    let nearest = quoted.map(|name| (strsim::damerau_levenshtein(name, unknown), name)).min();
    match nearest.filter(|(distance, name)| *distance <= name.len().div_ceil(3)) {
        Some((_, name)) => format!("{why}; did you mean `{name}`?"),
        None => why.to_owned(),
    }
}

fn read_tempo(given: &str) -> Result<TempoText, Failure> {
    let text = if given.trim_start().starts_with('{') {
        given.to_owned()
    } else {
        fs::read_to_string(given)
            .map_err(|error| Failure::usage(format!("The tempo file {given} cannot be read: {error}.")))?
    };
    serde_json::from_str(&text).map_err(|error| Failure::usage(format!("--tempo cannot be used: {error}.")))
}

fn log_to_stderr(format: LogFormat) {
    let filter = EnvFilter::try_from_env("CHECKFU_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    // A subscriber that is there already stays, which only tests can bring about.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

fn cannot_listen(listen: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::AddrInUse => Failure::new(
            Exit::AddressInUse,
            format!(
                "The address {listen} is in use. Stop what listens there, or choose another one with --listen."
            ),
        ),
        io::ErrorKind::InvalidInput => Failure::usage(format!(
            "The address {listen} cannot be used. Write it as ADDRESS:PORT, such as {DEFAULT_LISTEN}."
        )),
        _ => Failure::usage(format!("Nothing can listen on {listen}: {error}. Choose another --listen.")),
    }
}

/// What failed with all that caused it, since the operator is who can mend it.
fn did_not_serve(error: &checkfu::Error) -> Failure {
    if let checkfu::Error::InUse { path } = error {
        return Failure::new(
            Exit::DataDirInUse,
            format!(
                "Another server already uses {}. Stop that one, or give this one its own --data-dir.",
                path.display()
            ),
        );
    }
    let causes: Vec<String> =
        std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source())
            .map(ToString::to_string)
            .collect();
    let causes = causes.join(": ");
    Failure::local(format!("The server stopped: {}.", causes.trim_end_matches('.')))
}

#[cfg(test)]
mod tests;

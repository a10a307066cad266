//! What a server is told once at its start. Reading flags, files and the environment is the command line's business.

use checkfu_shared::{protocol::Tempo, secret::Secret};
use std::{net::SocketAddr, path::PathBuf, time::Duration};

/// The settings of one server.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where everything durable lives; made when missing.
    pub data_dir: PathBuf,
    /// Where the gateway sends model requests, such as `https://api.anthropic.com`.
    pub model_base_url: String,
    /// The provider's key; without one, model requests are refused.
    pub model_key: Option<Secret>,
    /// Certificate and key; without them the server speaks plain HTTP.
    pub tls: Option<Tls>,
    /// Master keys that seal secrets, in base64, the sealing one first; without any, the data directory's own is used.
    pub master_keys: Vec<Secret>,
    /// The share of a model's window, in percent, at which a conversation is summed up; 0 means never.
    pub compact_at_percent: u8,
    /// How fast runners go.
    pub tempo: Tempo,
    /// How often an idle stream sends a comment and checks its key again.
    pub keep_alive: Duration,
    /// How long requests may go on after the order to stop.
    pub stop_grace: Duration,
    /// How many connections may be open.
    pub connections_max: usize,
    /// Where health and metrics are answered, apart from the API.
    pub metrics: Option<SocketAddr>,
}

/// What the server shows to prove who it is, in PEM.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The certificate and whatever leads from it to a root.
    pub cert_file: PathBuf,
    /// Its private key.
    pub key_file: PathBuf,
}

impl Config {
    /// The default settings over a data directory.
    #[must_use]
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            model_base_url: "https://api.anthropic.com".to_owned(),
            model_key: None,
            tls: None,
            master_keys: Vec::new(),
            compact_at_percent: 80,
            tempo: Tempo::default(),
            keep_alive: Duration::from_secs(15),
            stop_grace: Duration::from_secs(10),
            connections_max: 10_000,
            metrics: None,
        }
    }
}

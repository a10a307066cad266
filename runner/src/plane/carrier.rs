//! The way that requests travel. Real ones go over HTTP; a simulation carries them itself, and so decides what gets lost.

use super::pool::Pool;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use reqwest::Method;
use std::{sync::Arc, time::Duration};

/// One request.
#[derive(Debug, Clone)]
pub struct Parcel {
    /// Its method.
    pub method: Method,
    /// Its path with the query, below the control plane's address.
    pub target: String,
    /// Its bearer token.
    pub token: Option<String>,
    /// Its body; JSON, but for uploads.
    pub body: Option<Bytes>,
}

/// One whole reply.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// How long the server wants to be left alone.
    pub retry_after: Option<Duration>,
    /// The body.
    pub body: Bytes,
}

/// Whoever carries requests instead of HTTP.
pub trait Carrier: std::fmt::Debug + Send + Sync {
    /// Carries one request there and its reply back. Dropping the future hangs up.
    ///
    /// The error says in words why no reply came.
    fn carry(&self, parcel: Parcel) -> BoxFuture<'_, Result<Answer, String>>;
}

/// How a link reaches the control plane.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    Http(Pool),
    Carried(Arc<dyn Carrier>),
}

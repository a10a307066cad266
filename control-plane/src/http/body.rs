//! Request bodies: JSON of at most 32 MiB, whatever content type curl wrote on it. A larger one is read to its end, within
//! bounds, so that the refusal reaches the caller and the connection stays usable.

use super::{Plane, auth::Dialect, fields::Fields, reply::Refusal};
use axum::extract::{FromRequest, Request};
use checkfu_shared::{
    problem::{Code, Problem},
    protocol::append::sha256_hex,
};
use futures_util::StreamExt;
use serde_json::Value;
use std::time::Duration;

/// The largest body.
pub const BODY_BYTES_MAX: usize = 32 << 20;
/// How much beyond the largest body is read and dropped to keep the connection.
const DRAIN_BYTES_MAX: usize = 64 << 20;
const DRAIN_MAX: Duration = Duration::from_secs(20);

/// A JSON body and the digest of its bytes; an empty body is an empty object.
#[derive(Debug)]
pub struct Json {
    /// The value.
    pub value: Value,
    /// SHA-256 of the bytes as sent, lowercase hexadecimal.
    pub sha256: String,
}

impl Json {
    /// Opens the body for reading member by member.
    ///
    /// # Errors
    /// `invalid_request` when it is not an object.
    pub fn fields(self, dialect: Dialect) -> Result<Fields, Problem> {
        Fields::body(self.value, dialect)
    }
}

impl FromRequest<Plane> for Json {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &Plane) -> Result<Self, Refusal> {
        let bytes = read(request.into_body(), BODY_BYTES_MAX).await?;
        let sha256 = sha256_hex(&bytes);
        let value = parse(&bytes)?;
        Ok(Self { value, sha256 })
    }
}

fn parse(bytes: &[u8]) -> Result<Value, Problem> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        Problem::new(
            Code::InvalidJson,
            format!("The body is not valid JSON at line {line}, column {column}."),
        )
    })
}

/// Reads a body of at most `max` bytes.
///
/// # Errors
/// `too_large` when it has more, `invalid_request` when it breaks off.
pub async fn read(body: axum::body::Body, max: usize) -> Result<Vec<u8>, Problem> {
    let mut frames = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(frame) = frames.next().await {
        let frame = frame
            .map_err(|_| Problem::new(Code::InvalidRequest, "The body broke off. Send the request again."))?;
        if bytes.len() + frame.len() > max {
            drop(bytes);
            drain(frames).await;
            let mib = max >> 20;
            return Err(Problem::new(
                Code::TooLarge,
                format!("The body is larger than {mib} MiB. Send less."),
            )
            .with("max_bytes", max));
        }
        bytes.extend_from_slice(&frame);
    }
    Ok(bytes)
}

async fn drain(mut frames: axum::body::BodyDataStream) {
    let mut dropped = 0;
    let all = async {
        while let Some(Ok(frame)) = frames.next().await {
            dropped += frame.len();
            if dropped > DRAIN_BYTES_MAX {
                break;
            }
        }
    };
    // Past the bound the connection is closed under the sender, which is what it asked for.
    let _ = tokio::time::timeout(DRAIN_MAX, all).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused_and_one_at_the_limit_is_read() {
        assert_eq!(read(axum::body::Body::from("12345"), 5).await, Ok(b"12345".to_vec()));
        assert_eq!(read(axum::body::Body::from("123456"), 5).await.unwrap_err().code, Code::TooLarge);
    }

    #[test]
    fn broken_and_too_deep_json_is_refused_and_an_empty_body_is_an_empty_object() {
        assert_eq!(parse(b" \n").unwrap(), serde_json::json!({}));
        for bad in [&b"{"[..], b"{\"a\":}", b"\xff", "[".repeat(10_000).as_bytes()] {
            assert_eq!(parse(bad).unwrap_err().code, Code::InvalidJson);
        }
    }
}

//! The rig: starts the real pieces a test from outside needs, and stops every one of them again.
//! It holds no assertion about the product itself and no copy of its logic; a test that needs a fact asks the
//! running piece for it. Nothing here sleeps for a result: `wait::until` looks until it is so, or gives up.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test's rig fails by panicking and says why"
)]

pub mod api;
pub mod link;
pub mod process;
pub mod proxy;
pub mod scripted_model;
pub mod tls;
pub mod tmpfs;
pub mod wait;
pub mod world;

/// A client that trusts no proxy of the machine's environment.
#[must_use]
pub fn http_client() -> reqwest::Client {
    // Fails only when another provider was installed first, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().expect("an HTTP client")
}

/// SHA-256 of `bytes`, lowercase hexadecimal.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    checkfu_shared::protocol::append::sha256_hex(bytes)
}

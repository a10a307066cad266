//! Pairing, identity, revocation, asks.

//! Asks a model through the gateway and reads its stream.

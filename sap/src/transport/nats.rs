//! nats.

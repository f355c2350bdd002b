//! Kits for OpenSentience runtime v1.

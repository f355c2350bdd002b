//! Kits for SACP 0.1 and 1.0.

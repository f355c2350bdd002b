//! Kits for UAP-1.1.

//! Kits for UAP hub v1.

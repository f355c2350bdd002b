//! Shared ground floor of the UBOS agent protocol crates: time, ids, bounded JSON, canonical JSON, findings, machines and a hash-chained log.

//! `sacp`: the messages of SACP 0.1 and 1.0.

use sacp::Edition;
use sacp::validate::findings;

use super::kind::Kind;

/// A message of the edition that its `proto_ver` names, or of the one that `--profile` does.
pub const MESSAGE: Kind = Kind {
    name: "sacp",
    about: "a message of SACP",
    profiles: &[V01, V10],
    max_bytes: 4 << 20,
    judge: |bytes, profile| findings(bytes, edition(profile)),
};

fn edition(profile: Option<&str>) -> Option<Edition> {
    match profile {
        Some(V01) => Some(Edition::V01),
        Some(V10) => Some(Edition::V10),
        _ => None,
    }
}

const V01: &str = "0.1";
const V10: &str = "1.0";

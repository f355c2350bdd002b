//! Keys that are known by how they begin.

use core::ops::Range;

use super::azure::is_mixed;
use super::scan::{Barren, find, run};

/// Bytes of the longest PEM block that is looked for.
pub(in crate::secret) const BLOCK_BYTES: usize = 16 * 1024;

pub(super) fn private_key(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    /// Bytes of the longest header.
    const HEADER: usize = 64;
    let rest = bytes.get(at..)?;
    let header = rest.strip_prefix(b"-----BEGIN ")?;
    let header = header.get(..header.len().min(HEADER))?;
    let end = find(header, b"-----")?;
    let title = header.get(..end)?;
    if !title.ends_with(b"PRIVATE KEY") && !title.ends_with(b"PRIVATE KEY BLOCK") {
        return None;
    }
    let block = rest.get(..rest.len().min(BLOCK_BYTES))?;
    Some(at..at + block_end(block).unwrap_or(block.len()))
}

/// Where a PEM block is over, behind its last line.
pub(in crate::secret) fn block_end(block: &[u8]) -> Option<usize> {
    let title = find(block, b"-----END ")? + b"-----END ".len();
    let close = find(block.get(title..)?, b"-----")?;
    Some(title + close + b"-----".len())
}

/// Sets `barren` to the end of a header that nothing fitting follows.
pub(super) fn jwt(bytes: &[u8], at: usize, barren: &mut usize) -> Option<Range<usize>> {
    let part = |from| run(bytes, from, |b| Body::Token.has(b));
    let header = part(at);
    let claims_at = at + header + 1;
    let claims = part(claims_at);
    let signature_at = claims_at + claims + 1;
    let signature = part(signature_at);
    let dotted =
        bytes.get(at + header) == Some(&b'.') && bytes.get(claims_at + claims) == Some(&b'.');
    if dotted && header >= 10 && claims >= 10 && signature >= 10 {
        return Some(at..signature_at + signature);
    }
    *barren = at + header;
    None
}

/// What a key consists of behind its prefix.
#[derive(Clone, Copy)]
pub(super) enum Body {
    /// Letters and digits.
    Plain,
    /// Those, hyphen and underscore.
    Token,
    /// Those and dots.
    Dotted,
}

impl Body {
    const fn has(self, byte: u8) -> bool {
        let joins = match self {
            Self::Plain => false,
            Self::Token => matches!(byte, b'-' | b'_'),
            Self::Dotted => matches!(byte, b'-' | b'_' | b'.'),
        };
        byte.is_ascii_alphanumeric() || joins
    }
}

/// A key of a cloud or an API. Sets `barren` to the end of a run without digits, where one ends that begins inside.
pub(super) fn api_key(bytes: &[u8], at: usize, barren: &mut Barren) -> Option<Range<usize>> {
    if let Some(range) = aws_secret(bytes, at, barren) {
        return Some(range);
    }
    let rest = bytes.get(at..)?;
    let (from, to) = *STARTS.get(usize::from(*rest.first()?))?;
    let same_start = PREFIXES.get(usize::from(from)..usize::from(to))?;
    let (prefix, fewest, body) = same_start
        .iter()
        .find(|(prefix, ..)| rest.starts_with(prefix.as_bytes()))?;
    let start = at + prefix.len();
    let is_dotted = matches!(body, Body::Dotted);
    if start <= barren.dotted_key || !is_dotted && start <= barren.api_key {
        return None;
    }
    let end = start + run(bytes, start, |b| body.has(b));
    // A key has digits; `sk-` before words joined by hyphens is prose.
    if !bytes.get(start..end)?.iter().any(u8::is_ascii_digit) {
        let barren = if is_dotted {
            &mut barren.dotted_key
        } else {
            &mut barren.api_key
        };
        *barren = end;
        return None;
    }
    if end - start < *fewest {
        return None;
    }
    if matches!(*prefix, "AKIA" | "ASIA") {
        barren.aws_id = Some(end);
    }
    Some(at..end)
}

/// Forty characters of base64 near the id of a key.
fn aws_secret(bytes: &[u8], at: usize, barren: &Barren) -> Option<Range<usize>> {
    const LENGTH: usize = 40;
    const NEAR: usize = 200;
    if at.checked_sub(barren.aws_id?)? > NEAR {
        return None;
    }
    let value = bytes.get(at..at + LENGTH)?;
    let ends = !bytes.get(at + LENGTH).copied().is_some_and(is_base64);
    (ends && is_base64_key(value)).then_some(at..at + LENGTH)
}

/// Whether a literal is a key of a cloud, where its name says that it is some key: 40 characters of AWS, 32 or 64 bytes of
/// Azure.
pub(super) fn is_cloud_key(name: &str, value: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    let is_named = name.contains("key") && (name.contains("access") || name.contains("account"));
    let digits = match value {
        [digits @ .., b'=', b'='] if digits.len() == 86 => digits,
        [digits @ .., b'='] if digits.len() == 43 => digits,
        digits if digits.len() == 40 => digits,
        _ => return false,
    };
    is_named && is_base64_key(digits)
}

/// Whether all is base64, and random.
fn is_base64_key(value: &[u8]) -> bool {
    let random = [
        u8::is_ascii_uppercase,
        u8::is_ascii_lowercase,
        u8::is_ascii_digit,
    ];
    is_mixed(value, &random) && value.iter().copied().all(is_base64)
}

const fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'+')
}

pub(super) type Prefix = (&'static str, usize, Body);

/// Prefix, the fewest characters that follow, and which. Sorted by first byte.
pub(super) const PREFIXES: [Prefix; 53] = [
    ("AGE-SECRET-KEY-1", 50, Body::Plain),
    ("AIza", 35, Body::Token),
    ("AKIA", 16, Body::Plain),
    ("ASIA", 16, Body::Plain),
    ("GOCSPX-", 20, Body::Token),
    ("NRAK-", 20, Body::Plain),
    ("PMAK-", 20, Body::Token),
    ("SG.", 60, Body::Dotted),
    ("dapi", 32, Body::Plain),
    ("dop_v1_", 40, Body::Plain),
    ("dp.pt.", 40, Body::Plain),
    ("gho_", 36, Body::Plain),
    ("ghp_", 36, Body::Plain),
    ("ghr_", 36, Body::Plain),
    ("ghs_", 36, Body::Plain),
    ("ghu_", 36, Body::Plain),
    ("github_pat_", 22, Body::Token),
    ("glcbt-", 20, Body::Token),
    ("gldt-", 20, Body::Token),
    ("glft-", 20, Body::Token),
    ("glimt-", 20, Body::Token),
    ("glpat-", 20, Body::Dotted),
    ("glptt-", 20, Body::Token),
    ("glrt-", 20, Body::Dotted),
    ("glsoat-", 20, Body::Token),
    ("gsk_", 40, Body::Plain),
    ("hf_", 30, Body::Plain),
    ("hvs.", 20, Body::Token),
    ("lin_api_", 30, Body::Plain),
    ("npm_", 36, Body::Plain),
    ("nvapi-", 40, Body::Token),
    ("pplx-", 40, Body::Plain),
    ("pypi-", 40, Body::Token),
    ("r8_", 32, Body::Plain),
    ("rk_live_", 16, Body::Plain),
    ("rk_test_", 16, Body::Plain),
    ("shpat_", 32, Body::Plain),
    ("shpss_", 32, Body::Plain),
    ("sk-", 20, Body::Token),
    ("sk_live_", 16, Body::Plain),
    ("sk_test_", 16, Body::Plain),
    ("sntrys_", 40, Body::Token),
    ("tfp_", 40, Body::Token),
    ("whsec_", 24, Body::Plain),
    ("xai-", 40, Body::Plain),
    ("xapp-", 20, Body::Token),
    ("xoxa-", 20, Body::Token),
    ("xoxb-", 20, Body::Token),
    ("xoxe.xox", 20, Body::Token),
    ("xoxp-", 20, Body::Token),
    ("xoxr-", 20, Body::Token),
    ("xoxs-", 20, Body::Token),
    ("ya29.", 20, Body::Token),
];

/// The part of [`PREFIXES`] that begins with each byte.
#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "made when it is compiled, which a place beyond the end would stop; there are fewer than 256 prefixes"
)]
pub(super) static STARTS: [(u8, u8); 256] = {
    let mut starts = [(0, 0); 256];
    let mut n = 0;
    while n < PREFIXES.len() {
        let start = &mut starts[PREFIXES[n].0.as_bytes()[0] as usize];
        if start.1 == 0 {
            start.0 = n as u8;
        }
        n += 1;
        start.1 = n as u8;
    }
    starts
};

//! XXH64, the checksum that names a damaged record or header.
//!
//! It guards against accidents only; what resists a forger is the BLAKE3 chain. Sixty-four bits at several
//! bytes a cycle keep it out of the way of the block hash.

/// XXH64 of `bytes`.
pub(crate) fn xxh64(bytes: &[u8], seed: u64) -> u64 {
    let (stripes, rest) = bytes.as_chunks::<32>();
    let start = if stripes.is_empty() {
        seed.wrapping_add(P5)
    } else {
        converge(stripes, seed)
    };
    avalanche(tail(start.wrapping_add(bytes.len() as u64), rest))
}

fn converge(stripes: &[[u8; 32]], seed: u64) -> u64 {
    let mut lanes = [
        seed.wrapping_add(P1).wrapping_add(P2),
        seed.wrapping_add(P2),
        seed,
        seed.wrapping_sub(P1),
    ];
    for stripe in stripes {
        for (lane, word) in lanes.iter_mut().zip(stripe.as_chunks::<8>().0) {
            *lane = round(*lane, u64::from_le_bytes(*word));
        }
    }
    let [a, b, c, d] = lanes;
    let mixed = a
        .rotate_left(1)
        .wrapping_add(b.rotate_left(7))
        .wrapping_add(c.rotate_left(12))
        .wrapping_add(d.rotate_left(18));
    lanes.into_iter().fold(mixed, |hash, lane| {
        (hash ^ round(0, lane)).wrapping_mul(P1).wrapping_add(P4)
    })
}

fn tail(mut hash: u64, rest: &[u8]) -> u64 {
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        hash ^= round(0, u64::from_le_bytes(*word));
        hash = hash.rotate_left(27).wrapping_mul(P1).wrapping_add(P4);
    }
    let (halves, rest) = rest.as_chunks::<4>();
    for half in halves {
        hash ^= u64::from(u32::from_le_bytes(*half)).wrapping_mul(P1);
        hash = hash.rotate_left(23).wrapping_mul(P2).wrapping_add(P3);
    }
    for byte in rest {
        hash ^= u64::from(*byte).wrapping_mul(P5);
        hash = hash.rotate_left(11).wrapping_mul(P1);
    }
    hash
}

fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(P2))
        .rotate_left(31)
        .wrapping_mul(P1)
}

fn avalanche(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(P2);
    hash = (hash ^ (hash >> 29)).wrapping_mul(P3);
    hash ^ (hash >> 32)
}

const P1: u64 = 0x9E37_79B1_85EB_CA87;
const P2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const P3: u64 = 0x1656_67B1_9E37_79F9;
const P4: u64 = 0x85EB_CA77_C2B2_AE63;
const P5: u64 = 0x27D4_EB2F_1656_67C5;

#[cfg(test)]
mod tests {
    use super::xxh64;

    #[test]
    fn published_values_are_met() {
        assert_eq!(xxh64(b"", 0), 0xEF46_DB37_51D8_E999);
        assert_eq!(xxh64(b"a", 0), 0xD24E_C4F1_A98C_6E5B);
        assert_eq!(xxh64(b"abc", 0), 0x44BC_2CF5_AD77_0999);
        assert_eq!(
            xxh64(b"The quick brown fox jumps over the lazy dog", 0),
            0x0B24_2D36_1FDA_71BC
        );
    }
}

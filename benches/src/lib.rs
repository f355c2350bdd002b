//! Criterion benches: ours and the yardstick in one process, quoted as ratios.

//! Settings that are refused.

use ubos_common::ConfigError;

#[test]
fn the_least_value_of_a_setting_is_taken() {
    let at_least = |seen| ConfigError::at_least("max_running", seen, 1);
    assert_eq!(at_least(1), Ok(()));
    assert!(at_least(0).is_err());
}

//! Numbers in canonical form.

use proptest::prelude::*;
use ubos_common::canon::{self, CanonFault, Mode};

/// The largest integer up to which every integer is a double.
const MAX_EXACT: u64 = 1 << 53;

/// Bit pattern and canonical text. Spec: RFC 8785 appendix B
const APPENDIX_B: &[(u64, &str)] = &[
    (0x0000_0000_0000_0000, "0"),
    (0x8000_0000_0000_0000, "0"),
    (0x0000_0000_0000_0001, "5e-324"),
    (0x8000_0000_0000_0001, "-5e-324"),
    (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
    (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
    (0x4340_0000_0000_0000, "9007199254740992"),
    (0xc340_0000_0000_0000, "-9007199254740992"),
    (0x4430_0000_0000_0000, "295147905179352830000"),
    (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
    (0x44b5_2d02_c7e1_4af6, "1e+23"),
    (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
    (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
    (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
    (0x444b_1ae4_d6e2_ef50, "1e+21"),
    (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
    (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
    (0x41b3_de43_5555_5553, "333333333.3333332"),
    (0x41b3_de43_5555_5554, "333333333.33333325"),
    (0x41b3_de43_5555_5555, "333333333.3333333"),
    (0x41b3_de43_5555_5556, "333333333.3333334"),
    (0x41b3_de43_5555_5557, "333333333.33333343"),
    (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
    (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
];

fn double(value: f64) -> String {
    String::from_utf8(canon::to_vec(&value).unwrap()).unwrap()
}

fn fault(result: Result<(), canon::CanonError>) -> Result<(), CanonFault> {
    result.map_err(|error| error.fault().clone())
}

fn text(text: &str, mode: Mode) -> Result<String, CanonFault> {
    let mut out = Vec::new();
    fault(canon::write_str(&mut out, mode, text))?;
    Ok(String::from_utf8(out).unwrap())
}

#[test]
fn appendix_b_is_met() {
    for (bits, wanted) in APPENDIX_B {
        assert_eq!(double(f64::from_bits(*bits)), *wanted, "{bits:#018x}");
    }
}

#[test]
fn what_no_double_holds_is_refused() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let written = canon::write(&mut Vec::new(), Mode::Jcs, &value);
        assert_eq!(fault(written), Err(CanonFault::NotFinite));
    }
    assert_eq!(text("1e400", Mode::Jcs), Err(CanonFault::NotFinite));
    assert_eq!(text("-1e400", Mode::Exact), Err(CanonFault::NotFinite));
}

#[test]
fn exact_mode_refuses_another_value() {
    for inexact in [
        "9007199254740993",
        "-9007199254740993.0",
        "18446744073709551615",
        "1152921504606846976",
        "0.1000000000000000055511151231257827",
        "1e-400",
        "0.10000000000000000000000001",
        "123456789012345678",
    ] {
        assert_eq!(
            text(inexact, Mode::Exact),
            Err(CanonFault::Inexact),
            "{inexact}"
        );
        assert!(text(inexact, Mode::Jcs).is_ok(), "{inexact}");
    }
}

#[test]
fn exact_mode_takes_any_spelling_of_the_value() {
    for (given, canonical) in [
        ("-0", "0"),
        ("-0.0e5", "0"),
        ("0e999999999999999999999999", "0"),
        ("1.0", "1"),
        ("1e3", "1000"),
        ("100", "100"),
        ("1.50", "1.5"),
        ("0.1", "0.1"),
        ("0.10e0", "0.1"),
        ("0.000001", "0.000001"),
        ("0.0000001", "1e-7"),
        ("1000000000000000000000", "1e+21"),
        ("1152921504606847000", "1152921504606847000"),
        ("10.0e+19", "100000000000000000000"),
        ("0.00012E4", "1.2"),
        ("9007199254740992", "9007199254740992"),
    ] {
        assert_eq!(
            text(given, Mode::Exact).as_deref(),
            Ok(canonical),
            "{given}"
        );
    }
}

#[test]
fn typed_integers_are_rounded_or_refused() {
    fn check(value: impl serde::Serialize, wanted: &str, exact: bool) {
        let mut out = Vec::new();
        canon::write(&mut out, Mode::Jcs, &value).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
        let outcome = canon::write(&mut Vec::new(), Mode::Exact, &value);
        let expected = if exact {
            Ok(())
        } else {
            Err(CanonFault::Inexact)
        };
        assert_eq!(fault(outcome), expected, "{wanted}");
    }
    check(MAX_EXACT, "9007199254740992", true);
    check(MAX_EXACT + 1, "9007199254740992", false);
    check(u64::MAX, "18446744073709552000", false);
    check(i64::MIN, "-9223372036854776000", false);
    check(-9_007_199_254_740_994_i64, "-9007199254740994", true);
    check(10u128.pow(22), "1e+22", true);
    check(u128::MAX, "3.402823669209385e+38", false);
    check(i128::MIN, "-1.7014118346046923e+38", false);
}

/// Another implementation's text. The digits of the standard library would not do: halfway
/// between two shortest candidates it takes the greater, ECMAScript the even one.
fn reference(value: f64) -> String {
    serde_json_canonicalizer::to_string(&value).unwrap()
}

/// Doubles of all sizes, and those around the places where the notation changes.
fn doubles() -> impl Strategy<Value = f64> {
    let near = |value: f64| (-40i64..40).prop_map(move |step| neighbour(value, step));
    prop_oneof![
        4 => any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |v| v.is_finite()),
        1 => near(1e21),
        1 => near(1e-6),
        1 => near(1e-7),
        1 => near(1e16),
        1 => near(9_007_199_254_740_992.0),
        1 => near(f64::MIN_POSITIVE),
        1 => (0u64..100).prop_map(f64::from_bits),
        2 => (any::<i32>(), -12i32..12).prop_map(|(m, e)| f64::from(m) * 10f64.powi(e)),
    ]
}

fn neighbour(value: f64, step: i64) -> f64 {
    f64::from_bits(value.to_bits().wrapping_add_signed(step))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_float_of_32_bits_and_its_json_text_have_one_form(bits: u32) {
        let value = f32::from_bits(bits);
        prop_assume!(value.is_finite());
        let json = serde_json::to_string(&value).unwrap();
        prop_assert_eq!(canon::to_vec(&value).unwrap(), canon::str_to_vec(&json).unwrap());
    }

    #[test]
    fn doubles_look_as_in_ecmascript(value in doubles()) {
        prop_assert_eq!(double(value), reference(value));
        prop_assert_eq!(double(-value), reference(-value));
    }

    /// What is copied unread must be what reading would have written.
    #[test]
    fn the_short_way_is_the_long_way(given in "-?(0|[1-9][0-9]{0,15})(\\.0{0,7}[0-9]{1,9})?") {
        let value: f64 = given.parse().unwrap();
        prop_assert_eq!(text(&given, Mode::Jcs).unwrap(), reference(value));
    }

    #[test]
    fn exact_means_equal_in_decimal(
        given in "-?(0|[1-9][0-9]{0,22})(\\.[0-9]{1,22})?([eE][-+]?[0-9]{1,2})?",
    ) {
        let canonical = text(&given, Mode::Jcs).unwrap();
        let same = plain_decimal(&given) == plain_decimal(&canonical);
        prop_assert_eq!(text(&given, Mode::Exact).is_ok(), same, "{} {}", given, canonical);
    }
}

/// The number in fixed point with 400 places on each side, for comparison.
fn plain_decimal(text: &str) -> (bool, String) {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().unwrap();
    let negative = mantissa.starts_with('-');
    let mantissa = mantissa.trim_start_matches('-');
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let places = usize::try_from(400 - exponent).unwrap() - whole.len();
    let text = format!("{}{whole}{fraction}", "0".repeat(places));
    let text = format!("{text:0<800}");
    (negative && text.bytes().any(|digit| digit != b'0'), text)
}

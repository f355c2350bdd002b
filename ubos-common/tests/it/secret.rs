//! Secrets: the public corpus, streams, and hostile texts.

use core::ops::Range;

use proptest::prelude::*;
use ubos_common::is_unseen;
use ubos_common::json::to_string;
use ubos_common::secret::{
    PLACEHOLDER, Redactor, SecretKind, is_secret_free, is_secret_name, redact_text, secret_shapes,
};

/// A line of the corpus: the text, and what must be found in it.
fn read(line: &str) -> (String, Vec<Range<usize>>) {
    let (mut text, mut wanted) = (String::new(), Vec::new());
    for c in line.chars() {
        match c {
            '¦' => {}
            '␤' => text.push('\n'),
            '␉' => text.push('\t'),
            '⟦' => wanted.push(text.len()..text.len()),
            '⟧' => wanted.last_mut().unwrap().end = text.len(),
            c => text.push(c),
        }
    }
    (text, wanted)
}

fn corpus() -> Vec<(String, Vec<Range<usize>>)> {
    let lines = include_str!("../../corpus/secrets.txt").lines();
    let lines = lines.filter(|line| line.starts_with(['+', '-']));
    lines.map(|line| read(&line[2..])).collect()
}

// The beginning decides what it is, and all of it is one.
#[test]
fn what_is_longer_than_what_is_judged_is_found_to_the_end_of_its_line() {
    for name in ["Cookie: session", "token"] {
        let text = format!("{name}=9f86d081884c7d65{}\nbehind", "x1".repeat(1_000));
        let found: Vec<_> = secret_shapes(&text).map(|found| found.range).collect();
        let end = found.last().map(|range| range.end);
        assert_eq!(end, text.find('\n'), "{found:?}");
        let shown = redact_text(&text, usize::MAX);
        assert_eq!(shown.lines().last(), Some("behind"));
    }
}

#[test]
fn a_secret_of_the_least_or_the_greatest_length_is_found_whole() {
    let base64 = |characters| -> String { "aB3d".chars().cycle().take(characters).collect() };
    let dots = |characters| base64(characters) + ".";
    for (before, secret, is_found) in [
        ("https://", "abcdefgh1234567".to_owned(), false),
        ("https://", "abcdefgh12345678".to_owned(), true),
        ("Bearer ", base64(15), false),
        ("Bearer ", base64(16), true),
        ("Bearer%20", base64(16), true),
        ("", format!("a1.8Q~{}", base64(30)), false),
        ("", format!("a1.8Q~{}", base64(31)), true),
        ("", format!("a1.8Q~{}", dots(33)), true),
        ("?sv=1&sig=", base64(42), false),
        ("?sv=1&sig=", base64(43), true),
        // A name begins where the letters end that are judged.
        (
            &format!("password={}.token=", "a".repeat(1_017)),
            base64(8),
            true,
        ),
        // Its first letters are among those, and its digits behind them.
        (
            &format!("password={}.token=", "a".repeat(1_012)),
            "abcdefgh12345678".to_owned(),
            true,
        ),
        // The prefix begins in words that another one might have begun.
        ("sk-many-words-", format!("hvs.{}", base64(20)), true),
        ("sk-many-words-", format!("SG.{}", base64(60)), true),
    ] {
        let after = if before.ends_with("//") { "@h" } else { "" };
        let text = format!("{before}{secret}{after}");
        let found: Vec<_> = secret_shapes(&text).map(|it| &text[it.range]).collect();
        assert_eq!(found == [&secret], is_found, "{text}: {found:?}");
        assert_eq!(is_secret_free(&to_string(&text)), !is_found, "{text}");
    }
}

#[expect(
    clippy::print_stdout,
    reason = "recall and false alarms are to be read"
)]
#[test]
fn the_corpus_is_found_without_false_alarms() {
    let (mut wanted_count, mut missed, mut alarms, mut clean) = (0, Vec::new(), Vec::new(), 0);
    for (text, wanted) in corpus() {
        let found: Vec<Range<usize>> = secret_shapes(&text).map(|found| found.range).collect();
        let covers = |it: &Range<usize>, other: &Range<usize>| {
            it.start <= other.start && it.end >= other.end
        };
        wanted_count += wanted.len();
        clean += usize::from(wanted.is_empty());
        for secret in &wanted {
            if !found.iter().any(|found| covers(found, secret)) {
                missed.push(format!("{text:?}: {:?}", &text[secret.clone()]));
            }
        }
        for found in &found {
            if !wanted.iter().any(|secret| covers(secret, found)) {
                alarms.push(format!("{text:?}: {:?}", &text[found.clone()]));
            }
        }
    }
    let recall = wanted_count - missed.len();
    println!("secrets found: {recall} of {wanted_count}");
    println!(
        "false alarms: {}, in {clean} lines without secrets and beside the others",
        alarms.len()
    );
    assert_eq!((missed, alarms), (Vec::new(), Vec::new()));
}

#[test]
fn a_key_is_a_key_whatever_it_is_assigned_to() {
    const GITHUB: &str = "hp_6U6Ojx9J3trfBB9HaDEtV8EgtHXepBhgLpPG";
    let base64 = |characters| -> String { "aB3d".chars().cycle().take(characters).collect() };
    let (account, shared, aws) = (base64(86) + "==", base64(43) + "=", base64(40));
    let (hex, title) = ("5d41402abc4b2a76b9719d911017c592", "PRIVATE KEY-----");
    let application = format!("a1.8Q~{}", base64(34));
    for (text, wanted) in [
        (format!("token=g{GITHUB}"), SecretKind::ApiKey),
        (format!("token: 'g{GITHUB}'"), SecretKind::ApiKey),
        (format!("tool --token g{GITHUB}"), SecretKind::ApiKey),
        (format!("CLIENT_SECRET={application}"), SecretKind::ApiKey),
        (format!("secret = \"{application}\""), SecretKind::ApiKey),
        (format!("AccountKey={account};A=b"), SecretKind::ApiKey),
        (format!("tool --account-key {account}"), SecretKind::ApiKey),
        (format!("SharedAccessKey={shared}"), SecretKind::ApiKey),
        (format!("aws_secret_access_key = {aws}"), SecretKind::ApiKey),
        (format!("access_key = {hex}"), SecretKind::Assignment),
        (format!("api_key = {aws}"), SecretKind::Assignment),
        (format!("password = {aws}"), SecretKind::Assignment),
        (
            format!("private_key = \"-----BEGIN {title}\\nMIIE\\n-----END {title}\""),
            SecretKind::PrivateKey,
        ),
        (
            "password = \"Bearer npT5xawz8r2A3hS1Jx9cJNtgsIGv8Ls9\"".to_owned(),
            SecretKind::Authorization,
        ),
    ] {
        let kinds: Vec<_> = secret_shapes(&text).map(|found| found.kind).collect();
        assert_eq!(kinds, [wanted], "{text}");
    }
}

#[test]
fn no_text_of_the_corpus_with_a_secret_passes_for_free() {
    let mut free = 0;
    for (text, _) in corpus() {
        let json = to_string(&text);
        for json in [format!(r#"{{"a":[1,{json}]}}"#), format!("{{{json}:null}}")] {
            let is_found = secret_shapes(&text).next().is_some();
            assert!(!(is_found && is_secret_free(&json)), "{json}");
            free += usize::from(is_secret_free(&json));
        }
    }
    assert!(free > 0);
}

/// Texts of what shapes are made of, in any order.
fn pieces() -> impl Strategy<Value = String> {
    const PIECES: [&str; 46] = [
        "-",
        "--",
        "-----BEGIN ",
        "PRIVATE KEY-----",
        ":",
        "://",
        "=",
        "=>",
        "@",
        "/",
        " ",
        ".",
        "_",
        "\u{200b}",
        "é",
        "password",
        "api",
        "Key",
        "token",
        "pass",
        "db_",
        "name",
        "value",
        "'",
        "Bearer",
        "basic",
        "eyJ",
        "ghp_",
        "sk-",
        "AKIA",
        "xox",
        "SG.",
        "Xb",
        "2025",
        "q",
        "abcdefgh12345678",
        "ABCDEFGHIJ0123456789",
        "wJalrXUtnFEMIK7MDENG",
        "x9!",
        "{",
        "~",
        "a1.8Q~",
        "sig",
        "sv",
        "&",
        "aB1aB1aB1aB1aB1aB1aB1aB1aB1aB1aB",
    ];
    let piece = proptest::sample::select(&PIECES[..]);
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn nothing_with_a_shape_passes_for_free(text in pieces()) {
        let json = to_string(&text);
        let is_found = secret_shapes(&text).next().is_some();
        let value = format!("[{json}]");
        prop_assert!(!(is_found && is_secret_free(&value)));
        let name = format!("{{{json} :1}}");
        let is_name = is_secret_name(&text);
        prop_assert!(!((is_found || is_name) && is_secret_free(&name)));
    }
}

#[test]
fn a_stream_in_any_pieces_shows_no_secret_of_the_corpus() {
    for (text, wanted) in corpus() {
        for size in [1, 3, 7, usize::MAX] {
            let mut redactor = Redactor::default();
            let mut shown = String::new();
            let chars: Vec<char> = text.chars().collect();
            for piece in chars.chunks(size.min(chars.len())) {
                shown += &redactor.push(&piece.iter().collect::<String>());
            }
            shown += &redactor.finish();
            for secret in &wanted {
                let secret = &text[secret.clone()];
                assert!(!shown.contains(secret), "{shown:?} shows {secret:?}");
            }
            if wanted.is_empty() {
                assert_eq!(shown, text);
            }
        }
    }
}

#[test]
fn a_private_key_over_many_lines_is_replaced_by_one_placeholder() {
    let title = format!("{} KEY-----", "PRIVATE");
    let mut redactor = Redactor::default();
    let mut shown = redactor.push(&format!("before\n-----BEGIN {title}\n"));
    for _ in 0..50 {
        shown += &redactor.push("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ\n");
    }
    shown += &redactor.push(&format!("-----END {title} after\n"));
    assert_eq!(shown, format!("before\n{PLACEHOLDER} after\n"));
}

#[test]
fn a_private_key_without_an_end_is_bounded() {
    let mut redactor = Redactor::default();
    let mut shown = redactor.push(&format!("-----BEGIN {} KEY-----\n", "PRIVATE"));
    for _ in 0..1_000 {
        shown += &redactor.push("a line of thirty-one bytes here\n");
    }
    let lines = shown.matches("a line").count();
    assert!((480..500).contains(&lines), "{lines}");
}

#[test]
fn a_line_without_an_end_is_held_back_no_longer_than_its_bound() {
    let mut redactor = Redactor::default();
    let mut shown = 0;
    for _ in 0..10_000 {
        shown += redactor.push("word ").len();
        assert!(format!("{redactor:?}").len() < 80);
    }
    assert!(shown > 50_000 - 9_000, "{shown}");
    assert_eq!(shown + redactor.finish().len(), 50_000);
}

#[test]
fn a_line_as_long_as_its_bound_is_held_back() {
    let line = "word ".repeat(1_638) + "a ";
    assert_eq!(line.len(), 8 * 1_024);
    let mut redactor = Redactor::default();
    assert_eq!(redactor.push(&line), "");
    assert_eq!(redactor.push("b"), line);
    // What is remembered is no part of it.
    assert!(format!("{redactor:?}").contains("held_bytes: 1,"));
    assert_eq!(redactor.push(&line[1..]), "");
}

#[test]
fn a_key_with_an_invisible_character_in_its_prefix_does_not_pass_for_free() {
    let key = "hp_6U6Ojx9J3trfBB9HaDEtV8EgtHXepBhgLpPG";
    for between in ["", "\u{200b}"] {
        let text = format!("g{between}{key}");
        assert!(!is_secret_free(&to_string(&text)), "{text:?}");
    }
}

#[test]
fn no_character_that_nobody_sees_hides_a_secret() {
    let named = [
        '\u{ad}',
        '\u{34f}',
        '\u{180e}',
        '\u{200b}',
        '\u{200e}',
        '\u{200f}',
        '\u{202a}',
        '\u{202e}',
        '\u{2060}',
        '\u{2066}',
        '\u{2069}',
        '\u{fe0f}',
        '\u{feff}',
        '\u{e0001}',
        '\u{e007f}',
    ];
    assert!(named.into_iter().all(is_unseen));
    let all = (0..=u32::from(char::MAX)).filter_map(char::from_u32);
    for unseen in all.filter(|letter| is_unseen(*letter)) {
        let text = format!(
            "key {unseen}g{unseen}hp_6U6Ojx9J3trfBB9HaDEtV8E{unseen}gtHXepBhgLpPG{unseen}."
        );
        // Those at its ends do not belong to it.
        let edge = unseen.len_utf8();
        let ranges = secret_shapes(&text).map(|found| (found.range.start, found.range.end));
        let found: Vec<_> = ranges.collect();
        let wanted = (4 + edge, text.len() - 1 - edge);
        assert_eq!(found, [wanted], "{:x}", u32::from(unseen));
        assert!(!is_secret_free(&to_string(&text)));
    }
}

// Quadratic time would not end.
#[test]
fn beginnings_without_end_are_read_once() {
    for start in [
        "-",
        "--",
        "--token",
        "sk-",
        "xoxb-",
        "AIza-",
        "github_pat_-",
        "eyJ-",
        "eyJabc.",
        "token:",
        "token=",
        "token=\"",
        "--token ",
        "x-api-key: <",
        "://",
        "a://b",
        "Bearer ",
        "value\":",
        "cookie: ",
        "-----BEGIN ",
        "password:\n",
        "\u{200b}token",
        "\u{e0001}\u{202e}token=",
        "&sig=",
        "?sv=1&sig=",
        "&sig=aB1aB1aB1aB1aB1aB1aB1aB1aB1aB1aB1aB1aB1aB1aB1",
        "~",
        "8Q~",
        "a1.8Q~aB1aB1aB1aB1aB1aB1aB1aB1aB1aB1aB1aB1",
        "AccountKey=",
        "token=sk-",
        "token=eyJ-",
    ] {
        let text = start.repeat(50_000);
        assert!(secret_shapes(&text).count() <= 50_000, "{start}");
    }
}

proptest! {
    #[test]
    fn ranges_are_in_order_and_between_characters(text in "(?s)[ -~\u{200b}é]{0,80}(token|password|Bearer|://u:|sk-|AKIA)[=: \"]{0,3}[ -~\u{200b}é]{0,60}") {
        let mut last = 0;
        for found in secret_shapes(&text) {
            prop_assert!(found.range.start >= last && found.range.end > found.range.start);
            prop_assert!(text.get(found.range.clone()).is_some());
            last = found.range.end;
        }
        // What was replaced once is not replaced again.
        let once = redact_text(&text, 1_000).into_owned();
        prop_assert!(once.matches(PLACEHOLDER).count() >= usize::from(last > 0));
    }
}

// The bound may fall into the middle of a character.
#[test]
fn a_private_key_without_an_end_is_text_again_behind_whole_characters() {
    // Longer than what is remembered of the text before.
    for pad in ["x".repeat(300), "x".repeat(301)] {
        let mut redactor = Redactor::default();
        let begin = format!("-----BEGIN PRIVATE KEY-----\n{pad}\n");
        let mut out = redactor.push(&begin);
        out += &redactor.push(&format!("{}\nbehind\n", "é".repeat(20_000)));
        assert!(out.ends_with("é\nbehind\n"));
        let hidden = 20_000 - out.matches('é').count();
        // 16 KiB, of which the first lines take some.
        assert_eq!(hidden, (16_384 - begin.len()).div_ceil(2));
        let whole = format!("{begin}{}", "é".repeat(20_000));
        let found = secret_shapes(&whole).next().unwrap();
        assert_eq!(found.range, 0..16_384 + begin.len() % 2);
    }
}

#[test]
fn what_begins_like_a_secret_and_is_none_is_free() {
    for text in [
        "eyJust a long word that begins like a token",
        "sk-ip this part of the text",
    ] {
        assert!(is_secret_free(&format!("\"{text}\"")), "{text}");
    }
}

// What is remembered may begin in the middle of a character.
#[test]
fn lines_of_long_characters_are_given_out_as_they_are() {
    for pad in ["", "x", "xx", "xxx"] {
        let lines = format!("{pad}{}\n", "語é🙂".repeat(200)).repeat(5);
        let mut redactor = Redactor::default();
        let mut out = String::new();
        for line in lines.split_inclusive('\n') {
            out += &redactor.push(line);
            let shown = format!("{redactor:?}");
            let (_, remembered) = shown.split_once("remembered_bytes: ").unwrap();
            let (remembered, _) = remembered.split_once(',').unwrap();
            assert!(
                (253..=256).contains(&remembered.parse().unwrap()),
                "{shown}"
            );
        }
        out += &redactor.finish();
        assert_eq!(out, lines);
    }
}

#[test]
fn what_counts_as_a_random_literal_depends_on_its_signs_and_on_what_stands_before_it() {
    for (text, count) in [
        // Without a digit: by its signs and both cases.
        ("password: Nobody@Nowhere", 1),
        ("password: nobody@nowhere", 0),
        ("password: NOBODY@NOWHERE", 0),
        ("password: NobodyNowhere", 0),
        // With one: by its signs, and it is no path.
        ("password: horse#battery9", 1),
        ("password: horse.battery#9", 0),
        ("password: horsebattery9", 0),
        // Directly behind a sign of equality it need not look random.
        ("PASSWORD=horse.battery9", 1),
        ("PASSWORD:horse.battery9", 0),
        ("PASSWORD= horse.battery9", 0),
        // A header's value is none where it is short, or has letters alone.
        ("x-api-key: a1b2c3d4", 1),
        ("x-api-key: a1b2c3", 0),
        ("x-api-key: abcdefghijkl", 0),
    ] {
        assert_eq!(secret_shapes(text).count(), count, "{text}");
    }
}

#[test]
fn a_literal_may_stand_on_the_next_line_behind_spaces() {
    for text in [
        "password: \n hunter2hunter2",
        "password:  \r\nhunter2hunter2",
    ] {
        let found = secret_shapes(text).map(|found| &text[found.range]);
        assert_eq!(found.collect::<Vec<_>>(), ["hunter2hunter2"], "{text:?}");
    }
}

#[test]
fn a_literal_in_quotes_has_at_most_4096_bytes() {
    let found = |bytes: usize| {
        let text = format!("password = \"{}\"", "x1".repeat(bytes / 2));
        let found = secret_shapes(&text).map(|found| found.range.len());
        found.collect::<Vec<_>>()
    };
    assert_eq!((found(4_096), found(4_098)), (vec![4_096], vec![]));
}

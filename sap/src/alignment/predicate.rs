//! Predicates over an output.

use core::fmt;
use core::str::FromStr;

use ubos_common::canon::Digest;
use ubos_common::json::{Kind, Raw, RawBuf, Read};

use super::output::{Output, Spent, read};
use super::reading::caseless;
use crate::lifecycle::body_digest;

/// Something that an output must be like: at most 1,024 bytes, 16 terms, and 32 tokens a place.
///
/// ```text
/// predicate = term { " and " term }
/// term      = [ "not " ] place " " test
/// place     = "." | an RFC 6901 pointer; a token "*" stands for every element or member
/// test      = "exists"
///           | "is " ( "null" | "boolean" | "number" | "string" | "array" | "object" )
///           | ( "=" | "!=" ) " " any JSON value
///           | ( "<" | "<=" | ">" | ">=" ) " " a JSON number
///           | "length " ( "<" | "<=" | "=" | ">=" | ">" ) " " a JSON number
///           | ( "contains" | "starts" | "ends" ) " " a JSON string
/// ```
///
/// A test holds where it holds for every value at the place, and there is one. The length of a string is in
/// characters, that of an array or object in elements; numbers compare as doubles, and other values are equal
/// when their canonical forms are. Texts compare whatever their case. An `and` inside a JSON string does not
/// part two terms.
///
/// ```
/// use sap::alignment::Predicate;
/// use sap::ubos_common::json::RawBuf;
///
/// let cited: Predicate = "/sources length >= 2 and /sources/*/uri starts \"https:\" and not /draft = true".parse()?;
/// let output = RawBuf::parse(r#"{"sources":[{"uri":"https://a"},{"uri":"HTTPS://b"}]}"#)?;
/// assert!(cited.holds(output.as_raw()));
/// assert!(!cited.holds(RawBuf::parse(r#"{"sources":[]}"#)?.as_raw()));
/// assert!("/sources resembles 2".parse::<Predicate>().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct Predicate {
    text: Box<str>,
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq)]
struct Term {
    negated: bool,
    place: Vec<Token>,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Every,
    Name(String),
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Exists,
    Is(Kind),
    Equals(Constant, bool),
    Compares(Comparison, f64),
    Length(Comparison, f64),
    Contains(String),
    Starts(String),
    Ends(String),
}

/// What a value is compared with, prepared once.
#[derive(Clone, Debug, PartialEq)]
enum Constant {
    Number(f64),
    Other(Kind, Digest),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    AtMost,
    Equal,
    AtLeast,
    More,
}

impl Predicate {
    /// Bytes of the longest predicate.
    pub(crate) const MAX_BYTES: usize = 1_024;

    /// Terms that a predicate has at most.
    pub(crate) const MAX_TERMS: usize = 16;

    /// Tokens that a place has at most.
    pub(crate) const MAX_TOKENS: usize = 32;

    /// Whether an output is like that, whatever it takes to know. A policy of [`Rules`](super::Rules) bounds what
    /// its predicates take.
    #[must_use]
    pub fn holds(&self, output: Raw<'_>) -> bool {
        let mut output = Output::with_steps(output, usize::MAX);
        self.holds_within(&mut output) == Ok(true)
    }

    /// How many terms it has.
    pub(super) fn terms(&self) -> usize {
        self.terms.len()
    }

    /// Whether an output is like that, where its steps suffice.
    pub(super) fn holds_within(&self, output: &mut Output<'_>) -> Result<bool, Spent> {
        for term in &self.terms {
            if !term.holds(output)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl fmt::Debug for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Predicate").field(&self.text).finish()
    }
}

/// The predicate as it was written.
impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// Why a text is no predicate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} wanted in a predicate")]
#[non_exhaustive]
pub struct PredicateError {
    /// What was wanted.
    pub wanted: &'static str,
}

const fn wanted<T>(wanted: &'static str) -> Result<T, PredicateError> {
    Err(PredicateError { wanted })
}

impl FromStr for Predicate {
    type Err = PredicateError;

    fn from_str(text: &str) -> Result<Self, PredicateError> {
        #[cfg(test)]
        PARSED.set(PARSED.get() + 1);
        if text.len() > Self::MAX_BYTES {
            return wanted("at most 1024 bytes");
        }
        let terms = parts(text).into_iter().map(Term::parse);
        let terms: Vec<Term> = terms.collect::<Result<_, _>>()?;
        if terms.len() > Self::MAX_TERMS {
            return wanted("at most 16 terms");
        }
        Ok(Self {
            text: text.into(),
            terms,
        })
    }
}

/// The terms between ` and `, where that stands in no string.
fn parts(text: &str) -> Vec<&str> {
    const AND: &str = " and ";
    let (mut parts, mut start) = (Vec::new(), 0);
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b' ' if !is_quoted && text.get(at..).is_some_and(|rest| rest.starts_with(AND)) => {
                parts.push(text.get(start..at).unwrap_or_default());
                start = at + AND.len();
            }
            _ => {}
        }
    }
    parts.push(text.get(start..).unwrap_or_default());
    parts
}

impl Term {
    fn parse(text: &str) -> Result<Self, PredicateError> {
        let text = text.trim();
        let rest = text.strip_prefix("not ");
        let negated = rest.is_some();
        let Some((place, test)) = rest.unwrap_or(text).trim_start().split_once(' ') else {
            return wanted("a place and a test");
        };
        Ok(Self {
            negated,
            place: place_of(place)?,
            test: Test::parse(test.trim())?,
        })
    }

    fn holds(&self, output: &mut Output<'_>) -> Result<bool, Spent> {
        let found = find(output, &self.place)?.unwrap_or_default();
        let mut holds = !found.is_empty();
        for value in found {
            if !self.test.holds(value, output)? {
                holds = false;
                break;
            }
        }
        Ok(holds != self.negated)
    }
}

fn place_of(text: &str) -> Result<Vec<Token>, PredicateError> {
    if text == "." {
        return Ok(Vec::new());
    }
    let Some(tokens) = text.strip_prefix('/') else {
        return wanted("a place that is . or begins with /");
    };
    let tokens: Vec<Token> = tokens
        .split('/')
        .map(|token| match token {
            "*" => Token::Every,
            name => Token::Name(name.replace("~1", "/").replace("~0", "~")),
        })
        .collect();
    if tokens.len() > Predicate::MAX_TOKENS {
        return wanted("at most 32 tokens in a place");
    }
    Ok(tokens)
}

/// The values at a place; `None` where the way there ends early.
fn find<'a>(output: &mut Output<'a>, place: &[Token]) -> Result<Option<Vec<Raw<'a>>>, Spent> {
    let mut values = vec![output.whole];
    for token in place {
        let mut next = Vec::new();
        for value in values {
            let before = next.len();
            if step(output, value, token, &mut next)?.is_none() {
                return Ok(None);
            }
            output.spend(VISIT * (next.len() - before))?;
        }
        values = next;
    }
    Ok(Some(values))
}

/// The values one token further; `None` where there is no such place.
fn step<'a>(
    output: &mut Output<'a>,
    value: Raw<'a>,
    token: &Token,
    next: &mut Vec<Raw<'a>>,
) -> Result<Option<()>, Spent> {
    let way = match (value.kind(), token) {
        (Kind::Object, Token::Every) => output
            .members(value)?
            .map(|members| next.extend(members.values())),
        (Kind::Object, Token::Name(name)) => output
            .members(value)?
            .and_then(|members| members.get(name).map(|member| next.push(*member))),
        (Kind::Array, Token::Every) => output
            .elements(value)?
            .map(|elements| next.extend(elements.iter())),
        (Kind::Array, Token::Name(index)) => output.elements(value)?.and_then(|elements| {
            let element = elements.get(index.parse::<usize>().ok()?)?;
            next.push(*element);
            Some(())
        }),
        _ => None,
    };
    Ok(way)
}

impl Test {
    fn parse(text: &str) -> Result<Self, PredicateError> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rest = rest.trim();
        let string = || match value::<String>(rest) {
            Some(text) => Ok(caseless(&text)),
            None => wanted("a JSON string"),
        };
        Ok(match word {
            "exists" if rest.is_empty() => Self::Exists,
            "is" => Self::Is(kind(rest)?),
            "=" | "!=" => match RawBuf::parse(rest) {
                Ok(value) => Self::Equals(constant(value.as_raw()), word == "="),
                Err(_) => return wanted("a JSON value"),
            },
            "length" => {
                let (sign, number) = rest.split_once(' ').unwrap_or((rest, ""));
                Self::Length(comparison(sign)?, number_of(number)?)
            }
            "contains" => Self::Contains(string()?),
            "starts" => Self::Starts(string()?),
            "ends" => Self::Ends(string()?),
            sign => Self::Compares(comparison(sign)?, number_of(rest)?),
        })
    }

    fn holds<'a>(&self, value: Raw<'a>, output: &mut Output<'a>) -> Result<bool, Spent> {
        Ok(match self {
            Self::Exists => true,
            Self::Is(kind) => value.kind() == *kind,
            Self::Equals(other, wanted) => is_equal(value, other, output)? == *wanted,
            Self::Compares(comparison, bound) => {
                let number = output.number(value)?;
                number.is_some_and(|number| comparison.holds(number, *bound))
            }
            Self::Length(comparison, bound) => {
                length(value, output)?.is_some_and(|length| comparison.holds(length, *bound))
            }
            Self::Contains(part) => output.text(value)?.is_some_and(|text| text.contains(part)),
            Self::Starts(part) => {
                let text = output.text(value)?;
                text.is_some_and(|text| text.starts_with(part))
            }
            Self::Ends(part) => output.text(value)?.is_some_and(|text| text.ends_with(part)),
        })
    }
}

impl Comparison {
    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Less => left < right,
            Self::AtMost => left <= right,
            Self::Equal => left == right,
            Self::AtLeast => left >= right,
            Self::More => left > right,
        }
    }
}

fn comparison(sign: &str) -> Result<Comparison, PredicateError> {
    Ok(match sign {
        "<" => Comparison::Less,
        "<=" => Comparison::AtMost,
        "=" => Comparison::Equal,
        ">=" => Comparison::AtLeast,
        ">" => Comparison::More,
        _ => return wanted("a test"),
    })
}

fn kind(word: &str) -> Result<Kind, PredicateError> {
    Ok(match word {
        "null" => Kind::Null,
        "boolean" => Kind::Bool,
        "number" => Kind::Number,
        "string" => Kind::String,
        "array" => Kind::Array,
        "object" => Kind::Object,
        _ => return wanted("a type"),
    })
}

fn value<T: for<'a> Read<'a>>(text: &str) -> Option<T> {
    read(RawBuf::parse(text).ok()?.as_raw())
}

fn number_of(text: &str) -> Result<f64, PredicateError> {
    value::<f64>(text.trim()).map_or_else(|| wanted("a JSON number"), Ok)
}

#[expect(clippy::cast_precision_loss, reason = "no length comes near 2^53")]
fn length<'a>(value: Raw<'a>, output: &mut Output<'a>) -> Result<Option<f64>, Spent> {
    let length = match value.kind() {
        Kind::String => {
            output.spend(value.as_str().len())?;
            read::<String>(value).map(|text| text.chars().count())
        }
        Kind::Array => output.elements(value)?.map(|elements| elements.len()),
        Kind::Object => output.members(value)?.map(|members| members.len()),
        _ => None,
    };
    Ok(length.map(|length| length as f64))
}

fn constant(value: Raw<'_>) -> Constant {
    let number = (value.kind() == Kind::Number)
        .then(|| read(value))
        .flatten();
    number.map_or_else(
        || Constant::Other(value.kind(), body_digest(value.as_str().as_bytes())),
        Constant::Number,
    )
}

fn is_equal<'a>(value: Raw<'a>, other: &Constant, output: &mut Output<'a>) -> Result<bool, Spent> {
    Ok(match other {
        Constant::Number(other) => output.number(value)?.is_some_and(|number| number == *other),
        Constant::Other(kind, _) if value.kind() != *kind => false,
        Constant::Other(_, digest) => output.digest(value)? == *digest,
    })
}

/// Steps of a value that is found at a place.
const VISIT: usize = 32;

#[cfg(test)]
std::thread_local! {
    /// Predicates that this thread has parsed.
    pub(super) static PARSED: core::cell::Cell<usize> = const { core::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_holds_and_does_not() {
        let output =
            r#"{"n":2,"t":"Ab and c","l":[1,{"x":1.0}],"o":{"a/b":null,"x~":true},"e":[]}"#;
        let output = RawBuf::parse(output).unwrap();
        for (text, holds) in [
            (". is object", true),
            (". is array", false),
            ("/n exists", true),
            ("/m exists", false),
            ("not /m exists", true),
            ("/n = 2.0", true),
            ("/n != 2", false),
            ("/l/1 = {\"x\":1}", true),
            ("/n >= 2 and /n <= 2 and /n > 1.5", true),
            ("/n < 2", false),
            ("/t < 2", false),
            ("/t contains \"B and C\" and /n exists", true),
            ("/t starts \"ab\" and /t ends \"C\"", true),
            ("/t length = 8", true),
            (". != \"a\\\" and b\"", true),
            ("/l length > 2", false),
            ("/o length = 2", true),
            ("/n length = 1", false),
            ("/o/a~1b is null", true),
            (". is boolean", false),
            ("/o/x~0 = true", true),
            ("/l/* exists", true),
            ("/l/* is number", false),
            ("/l/*/x exists", false),
            ("/e/* exists", false),
            ("/l/7 exists", false),
            ("/o/*/x exists", false),
            ("/o/* exists", true),
            ("/o/* is null", false),
        ] {
            let predicate: Predicate = text.parse().unwrap();
            assert_eq!(predicate.holds(output.as_raw()), holds, "{text}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too slow in an interpreter")]
    fn reading_a_long_value_is_paid_for_once() {
        let long = "7".repeat(100_000);
        let (number, text) = (format!("0.{long}"), format!("\"{long}\""));
        // The object is read, and then the value. A digest is dear, and so is to look through a text.
        for (value, terms, steps) in [
            (&number, "/n > 0.5 and /n != 2", 200_000),
            (&text, "/n != \"\" and /n != \"8\"", 500_000),
            (&text, "/n ends \"7\" and /n starts \"7\"", 600_000),
        ] {
            let output = RawBuf::parse(&format!("{{\"n\":{value}}}")).unwrap();
            let predicate: Predicate = [terms; 8].join(" and ").parse().unwrap();
            let within = |steps| {
                let mut output = Output::with_steps(output.as_raw(), steps);
                predicate.holds_within(&mut output)
            };
            assert_eq!(within(steps - 10_000), Err(Spent), "{terms}");
            assert_eq!(within(steps + 10_000), Ok(true), "{terms}");
        }
    }

    #[test]
    fn reading_a_list_or_a_text_is_paid_for() {
        let list = (format!("[{}1]", "1,".repeat(1_000)), ". length > 1");
        let text = (format!("\"{}\"", "x".repeat(2_000)), ". contains \"x\"");
        for (output, text) in [list, text] {
            let output = RawBuf::parse(&output).unwrap();
            let mut output = Output::with_steps(output.as_raw(), 2_000);
            let predicate: Predicate = text.parse().unwrap();
            assert_eq!(predicate.holds_within(&mut output), Err(Spent), "{text}");
        }
    }

    #[test]
    fn a_value_is_paid_for_when_it_is_found_and_no_second_time() {
        let lists = |element| format!("[{}{element}]", format!("{element},").repeat(999));
        for (output, text, steps) in [
            (lists("1"), "/* exists", 2_001 + 1_000 * VISIT),
            (
                lists("[1]"),
                "/*/0 exists",
                4_001 + 1_000 * (VISIT + 3 + VISIT),
            ),
        ] {
            let output = RawBuf::parse(&output).unwrap();
            let predicate: Predicate = text.parse().unwrap();
            for (steps, held) in [(steps - 1, Err(Spent)), (steps, Ok(true))] {
                let mut output = Output::with_steps(output.as_raw(), steps);
                assert_eq!(predicate.holds_within(&mut output), held, "{text}");
            }
        }
    }

    #[test]
    fn what_is_no_predicate_says_what_is_wanted() {
        let tokens = "/a".repeat(33) + " exists";
        let terms = vec!["/a exists"; 17].join(" and ");
        let long = format!("/a = \"{}\"", "x".repeat(1_024));
        for text in [
            "",
            "/a",
            "a exists",
            "/a exist",
            "/a exists now",
            "/a is text",
            "/a = ",
            "/a = {",
            "/a < \"b\"",
            "/a length",
            "/a length ~ 1",
            "/a contains 1",
            "/a exists and",
            &tokens,
            &terms,
            &long,
        ] {
            assert!(text.parse::<Predicate>().is_err(), "{text}");
        }
    }
}

//! The place of a message in a distributed trace: `traceparent` and `tracestate`, as W3C's Trace Context writes them.
//!
//! They travel where a transport has a place for them (headers, metadata, MCP's `_meta`), and never as a member of a message
//! whose specification has none. What is not valid is dropped: a message without its place in a trace is still the message.

use core::fmt;
use std::sync::Arc;

/// The name that a transport carries [`TraceContext::traceparent`] under.
pub const TRACEPARENT: &str = "traceparent";

/// The name that a transport carries [`TraceContext::tracestate`] under.
pub const TRACESTATE: &str = "tracestate";

/// A place in a trace. Cheap to clone.
///
/// ```
/// use ubos_common::trace_context::TraceContext;
///
/// let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let context = TraceContext::read(parent, ["vendor=value"]).ok_or("no place in a trace")?;
/// let below = context.child([1; 8]).ok_or("an id of zeroes")?;
/// assert_eq!(below.traceparent(), "00-0af7651916cd43dd8448eb211c80319c-0101010101010101-01");
/// assert_eq!(below.tracestate(), Some("vendor=value"));
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    flags: u8,
    state: Option<Arc<str>>,
}

impl TraceContext {
    /// A place that is not sampled and has no state; `None` where an id is all zeroes.
    #[must_use]
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8]) -> Option<Self> {
        let is_valid = trace_id != [0; 16] && span_id != [0; 8];
        is_valid.then_some(Self {
            trace_id,
            span_id,
            flags: 0,
            state: None,
        })
    }

    /// Reads both texts; `None` where the first is not valid. States are those of all headers of the name, in order; where
    /// they are not valid together the place has none.
    ///
    /// Versions after 00 are read as far as 00 goes, and written as 00. Flags that 00 does not know are dropped.
    #[must_use]
    pub fn read<'a>(
        traceparent: &str,
        tracestate: impl IntoIterator<Item = &'a str>,
    ) -> Option<Self> {
        let bytes = traceparent.trim_matches([' ', '\t']).as_bytes();
        let (version, rest) = bytes.split_first_chunk::<2>()?;
        let [version] = hex(version)?;
        let (trace_id, rest) = rest.strip_prefix(b"-")?.split_first_chunk::<32>()?;
        let (span_id, rest) = rest.strip_prefix(b"-")?.split_first_chunk::<16>()?;
        let (flags, rest) = rest.strip_prefix(b"-")?.split_first_chunk::<2>()?;
        let ends_well = match version {
            0 => rest.is_empty(),
            u8::MAX => false,
            _ => rest.is_empty() || rest.starts_with(b"-"),
        };
        let [flags] = hex(flags)?;
        let place = Self::new(hex(trace_id)?, hex(span_id)?).filter(|_| ends_well)?;
        Some(Self {
            flags: flags & KNOWN_FLAGS,
            state: state(tracestate),
            ..place
        })
    }

    /// Reads what a transport carries: `get` gives all values of a name. A place that is named twice is none.
    ///
    /// ```
    /// use ubos_common::trace_context::TraceContext;
    ///
    /// let headers = [("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")];
    /// let of = |name| headers.iter().filter(move |header| header.0 == name).map(|header| header.1);
    /// assert!(TraceContext::carried(of).is_some());
    /// ```
    #[must_use]
    pub fn carried<'a, I: IntoIterator<Item = &'a str>>(
        get: impl Fn(&'static str) -> I,
    ) -> Option<Self> {
        let mut parents = get(TRACEPARENT).into_iter();
        let parent = parents.next()?;
        match parents.next() {
            None => Self::read(parent, get(TRACESTATE)),
            Some(_) => None,
        }
    }

    /// What a transport is to carry: names with their values.
    pub fn to_carry(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        let state = self
            .tracestate()
            .map(|state| (TRACESTATE, state.to_owned()));
        core::iter::once((TRACEPARENT, self.traceparent())).chain(state)
    }

    /// The place of a span below this one; `None` where its id is all zeroes.
    #[must_use]
    pub fn child(&self, span_id: [u8; 8]) -> Option<Self> {
        let below = Self::new(self.trace_id, span_id)?;
        Some(Self {
            flags: self.flags,
            state: self.state.clone(),
            ..below
        })
    }

    /// Sets whether the trace is recorded.
    #[must_use]
    pub const fn with_sampled(mut self, sampled: bool) -> Self {
        self.flags = match sampled {
            true => self.flags | SAMPLED,
            false => self.flags & !SAMPLED,
        };
        self
    }

    /// Whether the trace may have been recorded by the one who sent it.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The trace.
    #[must_use]
    pub const fn trace_id(&self) -> [u8; 16] {
        self.trace_id
    }

    /// The span that what carries this was sent in.
    #[must_use]
    pub const fn span_id(&self) -> [u8; 8] {
        self.span_id
    }

    /// The text of version 00.
    #[must_use]
    pub fn traceparent(&self) -> String {
        self.to_string()
    }

    /// What tracing systems add, of at most 512 bytes.
    #[must_use]
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

/// As [`TraceContext::traceparent`].
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace_id
            .iter()
            .try_for_each(|b| write!(f, "{b:02x}"))?;
        f.write_str("-")?;
        self.span_id.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        write!(f, "-{:02x}", self.flags)
    }
}

/// What tracing systems add is theirs: its length alone.
impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.as_ref().map_or(0, |state| state.len());
        write!(f, "TraceContext({self}, {state} bytes of state)")
    }
}

/// Bytes of lower-case hexadecimal digits.
fn hex<const DIGITS: usize, const BYTES: usize>(digits: &[u8; DIGITS]) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            *byte = *byte << 4 | value;
        }
    }
    Some(bytes)
}

/// The members of all headers in one text; `None` where one is not valid, or there is none.
fn state<'a>(headers: impl IntoIterator<Item = &'a str>) -> Option<Arc<str>> {
    let mut members: Vec<&str> = Vec::new();
    for header in headers {
        for member in header.split(',') {
            let member = member.trim_matches([' ', '\t']);
            if member.is_empty() {
                continue;
            }
            let (key, value) = member.split_once('=')?;
            let is_new = members.iter().all(|known| !names(known, key));
            if members.len() == MEMBERS || !is_key(key) || !is_value(value) || !is_new {
                return None;
            }
            members.push(member);
        }
    }
    shorten(&mut members);
    (!members.is_empty()).then(|| members.join(",").into())
}

/// Leaves the long members out first, then the oldest, as far as it takes.
fn shorten(members: &mut Vec<&str>) {
    let fits = |members: &[&str]| {
        let commas = members.len().saturating_sub(1);
        members.iter().map(|member| member.len()).sum::<usize>() + commas <= STATE_BYTES
    };
    while !fits(members) {
        let long = members.iter().rposition(|member| member.len() > LONG);
        match long {
            Some(at) => drop(members.remove(at)),
            None => drop(members.pop()),
        }
    }
}

fn names(member: &str, key: &str) -> bool {
    member
        .strip_prefix(key)
        .is_some_and(|rest| rest.starts_with('='))
}

/// `key`, or `tenant@system`.
fn is_key(key: &str) -> bool {
    let is_part = |part: &str, bytes: usize, digit_first: bool| {
        let first = part.bytes().next();
        part.len() <= bytes
            && first.is_some_and(|b| b.is_ascii_lowercase() || (digit_first && b.is_ascii_digit()))
            && part
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-*/".contains(&b))
    };
    match key.split_once('@') {
        Some((tenant, system)) => is_part(tenant, 241, true) && is_part(system, 14, false),
        None => is_part(key, 256, false),
    }
}

/// Printable, without `,` and `=`, and not blank at its end.
fn is_value(value: &str) -> bool {
    let is_char = |b: u8| matches!(b, b' '..=b'~') && b != b'=';
    (1..=256).contains(&value.len()) && value.bytes().all(is_char) && !value.ends_with(' ')
}

const SAMPLED: u8 = 1;
/// Sampled, and a trace id that is random.
const KNOWN_FLAGS: u8 = 3;
/// Members that a state may have.
const MEMBERS: usize = 32;
/// Bytes of a state that are passed on.
const STATE_BYTES: usize = 512;
/// A member that is left out before others.
const LONG: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn read(parent: &str) -> Option<String> {
        TraceContext::read(parent, []).map(|context| context.traceparent())
    }

    #[test]
    fn a_place_is_read_as_far_as_version_00_goes() {
        assert_eq!(read(PARENT).as_deref(), Some(PARENT));
        let later = PARENT.replacen("00", "cc", 1);
        assert_eq!(read(&later).as_deref(), Some(PARENT));
        assert_eq!(
            read(&format!("{later}-what-comes")).as_deref(),
            Some(PARENT)
        );
        let flags = PARENT.replace("-01", "-ff");
        assert_eq!(read(&flags), Some(PARENT.replace("-01", "-03")));
        for wrong in [
            String::new(),
            format!("{PARENT}-"),
            format!("{PARENT}0"),
            format!("{later}0"),
            PARENT.to_uppercase(),
            PARENT.replacen("00", "ff", 1),
            PARENT.replacen('-', "_", 1),
            PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            PARENT.replace("b7ad6b7169203331", &"0".repeat(16)),
            PARENT.replace("b7ad6b7169203331", "b7ad6b716920333é"),
            PARENT[..54].to_owned(),
        ] {
            assert_eq!(read(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_state_is_kept_whole_or_not_at_all() {
        let state = |headers: &[&str]| {
            let read = TraceContext::read(PARENT, headers.iter().copied()).unwrap();
            read.tracestate().map(str::to_owned)
        };
        let long = format!("a={}", "v".repeat(256));
        let kept = [
            (&["a=1"][..], Some("a=1")),
            (&["a=1, b=2\t", "", ",c=3"], Some("a=1,b=2,c=3")),
            (&["0t@s= x y"], Some("0t@s= x y")),
            (&[&long], Some(&*long)),
        ];
        for (headers, wanted) in kept {
            assert_eq!(state(headers).as_deref(), wanted, "{headers:?}");
        }
        let too_long = format!("a={}", "v".repeat(257));
        let key = format!("{}=1", "k".repeat(257));
        let many: Vec<String> = (0..33).map(|n| format!("k{n}=1")).collect();
        let many = many.join(",");
        let dropped = [
            "", " , ", "a", "a=", "=1", "A=1", "1a=1", "a b=1", "a=é", "a=b=c", "a=1,a=2", "t@S=1",
            "t@=1", "@s=1", &too_long, &key, &many,
        ];
        for header in dropped {
            assert_eq!(state(&[header]), None, "{header}");
        }
    }

    #[test]
    fn a_state_is_shortened_by_its_long_and_its_oldest_members() {
        let member =
            |key: &str, bytes: usize| format!("{key}={}", "v".repeat(bytes - key.len() - 1));
        let of = |members: &[String]| {
            let read = TraceContext::read(PARENT, [&*members.join(",")]).unwrap();
            let state = read.tracestate().unwrap();
            assert!(state.len() <= 512);
            state
                .split(',')
                .map(|member| member[..1].to_owned())
                .collect::<String>()
        };
        let shorts: Vec<String> = ["a", "b", "c", "d"]
            .iter()
            .map(|key| member(key, 127))
            .collect();
        assert_eq!(of(&shorts), "abcd", "511 bytes");
        let mut more = shorts.clone();
        more.insert(1, member("l", 129));
        assert_eq!(of(&more), "abcd");
        more[1] = member("s", 128);
        assert_eq!(of(&more), "asb c".replace(' ', ""));
    }

    #[test]
    fn a_place_that_is_named_twice_is_none() {
        let of = |parents: &'static [&'static str]| {
            TraceContext::carried(|name| match name {
                TRACEPARENT => parents.to_vec(),
                _ => vec!["a=1", "b=2"],
            })
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[PARENT, PARENT]), None);
        let context = of(&[PARENT]).unwrap();
        let carried: Vec<_> = context.to_carry().collect();
        assert_eq!(
            carried,
            [
                (TRACEPARENT, PARENT.to_owned()),
                (TRACESTATE, "a=1,b=2".to_owned())
            ]
        );
        assert_eq!(context.child([0; 8]), None);
        assert!(context.is_sampled() && !context.with_sampled(false).is_sampled());
    }

    #[test]
    fn a_span_below_is_of_the_same_trace() {
        let parent = TraceContext::read(PARENT, ["vendor=1"]).unwrap();
        let child = parent.child([1; 8]).unwrap();
        let carried: Vec<_> = child.to_carry().map(|(_, value)| value).collect();
        let place = "00-0af7651916cd43dd8448eb211c80319c-0101010101010101-01";
        assert_eq!(carried, [place, "vendor=1"]);
    }
}

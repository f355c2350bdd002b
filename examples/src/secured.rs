//! TLS and tokens of the fleet programs, read from files.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use uap_hub_proto::transport::Tls;
use ubos_common::secret::Secret;

/// The files of `--tls-cert`, `--tls-key` and `--tls-ca`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// The certificate chain of this side.
    pub(crate) cert: Option<PathBuf>,
    /// Its private key.
    pub(crate) key: Option<PathBuf>,
    /// The authority that must have signed the certificate of the other side.
    pub(crate) ca: Option<PathBuf>,
}

impl TlsFiles {
    /// Whether the options fit together.
    pub(crate) fn check(&self) -> Result<(), String> {
        match (&self.cert, &self.key) {
            (Some(_), None) => Err("--tls-cert needs --tls-key".to_owned()),
            (None, Some(_)) => Err("--tls-key needs --tls-cert".to_owned()),
            _ => Ok(()),
        }
    }

    /// The settings; `None` where no file is named.
    pub(crate) fn read(&self) -> Result<Option<Tls>, String> {
        let mut tls = None;
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            let settings = Tls::default().with_identity(text(cert)?, Secret::new(text(key)?));
            tls = Some(settings);
        }
        if let Some(ca) = &self.ca {
            tls = Some(tls.unwrap_or_default().with_authority(text(ca)?));
        }
        Ok(tls)
    }
}

/// The token that an agent shows: the last word of the first line of the file, so that a line of the hub's file will do.
pub(crate) fn token(file: &Path) -> Result<Secret<String>, String> {
    let text = Secret::new(text(file)?);
    let first = text.expose().lines().next().unwrap_or_default();
    match Holder::read(first) {
        Some(holder) => Ok(Secret::new(holder.token.to_owned())),
        None => Err(format!("{}: the first line is no token", file.display())),
    }
}

/// An address, or an argument with one, without the name and the password, or token, before its last `@`: what is shown gets into
/// logs.
pub(crate) fn shown(text: &str) -> String {
    let Some((before, host)) = text.rsplit_once('@') else {
        return text.to_owned();
    };
    let scheme = before.split_once("://").map(|(scheme, _)| scheme);
    scheme.map_or_else(|| host.to_owned(), |scheme| format!("{scheme}://{host}"))
}

/// Who may come in, by the digests of their tokens: nothing else is kept of these.
pub(crate) struct Tokens(HashMap<Digest, String>);

type Digest = [u8; blake3::OUT_LEN];

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

/// Lines of a file of tokens.
const MAX_TOKENS: usize = 10_000;

/// Who has a token without a name; no name has spaces.
const NAMELESS: &str = "holder of the token";

impl Tokens {
    /// Reads a file with `NAME TOKEN`, or a token alone, on each line. A name may have several tokens, a token has one name.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let text = Secret::new(text(file)?);
        let mut tokens = HashMap::<Digest, String>::new();
        for (line, number) in text.expose().lines().zip(1..) {
            if line.trim().is_empty() {
                continue;
            }
            let wrong = |what: &str| Err(format!("{}:{number}: {what}", file.display()));
            let Some(Holder { name, token }) = Holder::read(line) else {
                return wrong("a line is NAME TOKEN, or a token alone");
            };
            if number > MAX_TOKENS {
                return wrong("more lines than 10000");
            }
            let digest = blake3::hash(token.as_bytes()).into();
            let kept = tokens.entry(digest).or_insert_with(|| name.to_owned());
            if kept != name {
                return wrong("another line has this token");
            }
        }
        if tokens.is_empty() {
            return Err(format!("{}: no line is a token", file.display()));
        }
        Ok(Self(tokens))
    }

    /// Whose token it is. Digests are compared, which nobody can choose byte by byte.
    pub(crate) fn holder(&self, token: &str) -> Option<&str> {
        let digest: Digest = blake3::hash(token.as_bytes()).into();
        self.0.get(&digest).map(String::as_str)
    }
}

/// A line of a file of tokens.
struct Holder<'a> {
    name: &'a str,
    token: &'a str,
}

impl<'a> Holder<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (first, second) = (words.next()?, words.next());
        let (name, token) = second.map_or((NAMELESS, first), |token| (first, token));
        words.next().is_none().then_some(Self { name, token })
    }
}

fn text(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|err| format!("{}: {err}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn each_token_has_its_holder() {
        let tokens = file("one  sesame\n\nsimsim\r\none new-sesame\nother open\nopen-too\n");
        let read = Tokens::read(tokens.path()).unwrap();
        for (token, holder) in [
            ("sesame", Some("one")),
            ("new-sesame", Some("one")),
            ("open", Some("other")),
            ("simsim", Some(NAMELESS)),
            ("open-too", Some(NAMELESS)),
            ("one", None),
            ("one  sesame", None),
            ("", None),
        ] {
            assert_eq!(read.holder(token), holder, "{token}");
        }
        assert_eq!(token(tokens.path()).unwrap().expose(), "sesame");
        assert_eq!(token(file("simsim\n").path()).unwrap().expose(), "simsim");
    }

    #[test]
    fn what_is_no_file_of_tokens_is_said_without_its_words() {
        for (text, why) in [
            ("", "no line is a token"),
            (" \n\n", "no line is a token"),
            ("a b\nname sesame more\n", ":2: a line is NAME TOKEN"),
            ("a sesame\nb sesame\n", ":2: another line has this token"),
            ("a sesame\nsesame\n", ":2: another line has this token"),
        ] {
            let refused = Tokens::read(file(text).path()).unwrap_err();
            assert!(refused.contains(why), "{refused}");
            assert!(!refused.contains("sesame"), "{refused}");
        }
        let many: String = (0..=MAX_TOKENS).map(|n| format!("n{n} t{n}\n")).collect();
        assert!(Tokens::read(file(&many).path()).is_err());
        let same = Tokens::read(file("a sesame\na sesame\n").path()).unwrap();
        assert_eq!(format!("{same:?}"), "Tokens(1)");
    }
}

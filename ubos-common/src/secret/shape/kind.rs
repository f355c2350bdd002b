//! The kinds of secrets.

/// What kind of secret a piece of text looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SecretKind {
    /// A PEM block with a private key.
    PrivateKey,
    /// `Bearer` or `Basic` and credentials; a password in a URL, or what signs one.
    Authorization,
    /// A JSON web token.
    Jwt,
    /// A key of a cloud or an API.
    ApiKey,
    /// A literal assigned to a name such as `password`.
    Assignment,
}

impl SecretKind {
    /// A short stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PrivateKey => "private_key",
            Self::Authorization => "authorization",
            Self::Jwt => "jwt",
            Self::ApiKey => "api_key",
            Self::Assignment => "assignment",
        }
    }
}

//! The ids of agents, sessions, streams and jobs.

use std::{borrow::Borrow, fmt, sync::Arc};

use ubos_common::id_type;

use crate::capability::Kind;

/// Declares a cheap, opaque text identifier.
macro_rules! text_id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text on the wire.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

text_id! {
    /// The id of a registration; the hub makes it, the agent sends it as `x-client-id`.
    ///
    /// Spec: UAP hub 2
    ClientId
}

text_id! {
    /// The id of one offer of a job to one agent; opaque to agents, which send it as `x-session-id`.
    ///
    /// Spec: UAP hub 3
    SessionId
}

text_id! {
    /// Who makes a call, as the driver has found out: a user, a token's owner, a certificate. It is shown in logs and must not
    /// be a secret.
    ///
    /// What an agent registered is of use to callers of the same identity only.
    Identity
}

impl SessionId {
    /// The id of a new offer: `JOB-` or `TRN-`, which deployed hubs route by, and a UUID.
    pub(crate) fn new(kind: Kind, uuid: ubos_common::id::Uuid) -> Self {
        /// Bytes of both parts.
        const PREFIX: usize = 4;
        const UUID: usize = 36;
        let prefix: &[u8; PREFIX] = match kind {
            Kind::Test => b"JOB-",
            Kind::Translation => b"TRN-",
        };
        // Without the formatter, which takes several times as long, and put together where it costs no allocation.
        let mut text = [0; PREFIX + UUID];
        let (start, rest) = text.split_at_mut(PREFIX);
        start.copy_from_slice(prefix);
        uuid.as_hyphenated().encode_lower(rest);
        Self((*String::from_utf8_lossy(&text)).into())
    }
}

id_type! {
    /// The id of a job, through all its offers.
    pub struct JobId;
}

/// The id of a gRPC call between a driver and its machine; the side that opens the call counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
// exhaustive: a plain number that drivers make
pub struct StreamId(pub u64);

//! Handshake and goodbye.

use core::str::FromStr;

use ubos_common::json::{Fault, Read, Reader, Write, escape_into};

use crate::token::SessionToken;

ubos_common::wire! {
    /// The agent's first message.
    ///
    /// Spec: OpenSentience 4.1.1
    pub struct Hello {
        /// What the core gave the agent at its launch: the one secret of the protocol.
        required @secret session_token: SessionToken = "session_token", "OSW-4.1-3";
        /// The id in the agent's manifest.
        // impl: OSW-4.1-2
        required agent_id: String = "agent_id", "OSW-4.1-2";
        /// The agent's version.
        required agent_version: SemVer = "agent_version", "OSW-4.1-2";
        /// SHA-256 of the manifest, in hexadecimal digits.
        nullable manifest_hash: String = "manifest_hash", "OSW-4.1-2";
        /// What the agent speaks.
        required protocol: ProtocolOffer = "protocol", "OSW-4.1-2";
        /// What the agent is built with.
        nullable sdk: Sdk = "sdk", "OSW-4.1-2";
    }
}

ubos_common::wire! {
    /// What an agent speaks.
    pub struct ProtocolOffer {
        /// Versions, in any order.
        required supported_versions: Vec<u64> = "supported_versions", "OSW-4.1-2";
        /// Optional abilities; advisory.
        required capabilities: Vec<String> = "capabilities", "OSW-4.1-2";
    }
}

ubos_common::wire! {
    /// What an agent is built with.
    pub struct Sdk {
        /// The name of the library.
        required name: String = "name", "OSW-4.1-2";
        /// Its version.
        required version: SemVer = "version", "OSW-4.1-2";
    }
}

ubos_common::wire! {
    /// The core takes the agent in.
    ///
    /// Spec: OpenSentience 4.1.2
    pub struct Welcome {
        /// The version that both speak from now on.
        required accepted_version: u64 = "accepted_version", "OSW-4.1-5";
        /// Names the session; every heartbeat repeats it.
        required session_id: String = "session_id", "OSW-4.1-5";
        /// Milliseconds from one heartbeat to the next.
        required heartbeat_interval_ms: u64 = "heartbeat_interval_ms", "OSW-4.1-5";
        /// Bytes of one message.
        required max_frame_bytes: u64 = "max_frame_bytes", "OSW-4.1-5";
        /// The core.
        required server: Server = "server", "OSW-4.1-5";
    }
}

ubos_common::wire! {
    /// A core.
    pub struct Server {
        /// Its version.
        required core_version: String = "core_version", "OSW-4.1-5";
        /// Which of its runs it is.
        required instance_id: String = "instance_id", "OSW-4.1-5";
    }
}

ubos_common::wire! {
    /// The core is about to close the connection.
    ///
    /// Spec: OpenSentience 4.1.3
    pub struct Goodbye {
        /// Why, as a safe word or sentence.
        required reason: String = "reason", "OSW-4.1-7";
        /// Milliseconds before a new connection makes sense.
        nullable retry_after_ms: u64 = "retry_after_ms", "OSW-4.1-7";
    }
}

/// A version by the rules of Semantic Versioning, kept as its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SemVer(Box<str>);

impl FromStr for SemVer {
    type Err = SemVerError;

    fn from_str(text: &str) -> Result<Self, SemVerError> {
        match semver::Version::parse(text) {
            Ok(_) => Ok(Self(text.into())),
            Err(_) => Err(SemVerError),
        }
    }
}

impl AsRef<str> for SemVer {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// A text that is not a version by the rules of Semantic Versioning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the text is not a semantic version such as 1.0.0")]
#[non_exhaustive]
pub struct SemVerError;

impl Read<'_> for SemVer {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Fault> {
        let at = reader.offset();
        let text = reader.str()?;
        text.parse()
            .map_err(|_| reader.bad_value_seen(at, "a semantic version", &text))
    }
}

impl Write for SemVer {
    fn write(&self, out: &mut Vec<u8>) {
        escape_into(out, &self.0);
    }
}

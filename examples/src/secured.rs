//! TLS and tokens of the fleet programs, read from files.

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

/// The token of `--token-file`: the first line of the file.
pub(crate) fn token(file: &Path) -> Result<Secret<String>, String> {
    let text = Secret::new(text(file)?);
    let first = text.expose().lines().next().unwrap_or_default().trim();
    if first.is_empty() {
        return Err(format!("{}: the first line is no token", file.display()));
    }
    Ok(Secret::new(first.to_owned()))
}

fn text(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|err| format!("{}: {err}", file.display()))
}

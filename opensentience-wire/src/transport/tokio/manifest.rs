//! Manifests as files, and their hashes.

use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::manifest::{FILE_NAME, MAX_BYTES, Manifest, ManifestError};

/// Reads a manifest's file; gives its [`manifest_hash`] too, for [`Launcher::with_manifest_hash`](super::Launcher::with_manifest_hash).
///
/// # Errors
///
/// See [`ManifestError`].
#[expect(
    clippy::disallowed_types,
    reason = "a short file, read before a launch"
)]
pub fn read_manifest(path: &Path) -> Result<(Manifest, String), ManifestError> {
    if path.file_name().is_none_or(|name| name != FILE_NAME) {
        return Err(ManifestError::FileName);
    }
    let found = std::fs::metadata(path).map_err(ManifestError::Read)?;
    if !found.is_file() {
        return Err(ManifestError::NotAFile);
    }
    let file = std::fs::File::open(path).map_err(ManifestError::Read)?;
    let bytes = read_bounded(file, found.len())?;
    Ok((Manifest::decode(&bytes)?, manifest_hash(&bytes)))
}

/// The bytes of a file that was found with a length, and may grow while it is read.
fn read_bounded(file: impl Read, found: u64) -> Result<Vec<u8>, ManifestError> {
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    let read = file.take(limit + 1).read_to_end(&mut bytes);
    read.map_err(ManifestError::Read)?;
    if bytes.len() > MAX_BYTES {
        let bytes = found.max(limit + 1);
        return Err(ManifestError::TooLarge { bytes });
    }
    Ok(bytes)
}

/// The hash that a hello names: SHA-256 over the file's bytes, in 64 hexadecimal digits.
///
/// ```
/// use opensentience_wire::transport::tokio::manifest_hash;
///
/// assert!(manifest_hash(b"abc").starts_with("ba7816bf"));
/// ```
#[must_use]
pub fn manifest_hash(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        // A String takes everything.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The hash of what an agent asks for, over its sorted permissions written as a JSON list: another one wants
/// another approval.
#[must_use]
pub fn permissions_hash(manifest: &Manifest) -> String {
    manifest_hash(&ubos_common::json::to_vec(&manifest.sorted_permissions()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: OSW-4.1-9
    #[test]
    fn a_file_is_read_with_its_name_its_bound_and_its_hash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        assert!(matches!(read_manifest(&path), Err(ManifestError::Read(_))));
        let text = r#"{"id":"a","entrypoint":{"type":"c"},"permissions":["b:c"," a:b","b:c"]}"#;
        std::fs::write(&path, text).unwrap();
        let (manifest, seen) = read_manifest(&path).unwrap();
        assert_eq!(seen, manifest_hash(text.as_bytes()));
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(manifest_hash(b"abc"), abc);
        assert_eq!(
            permissions_hash(&manifest),
            manifest_hash(br#"["a:b","b:c"]"#)
        );
        let blanks = " ".repeat(MAX_BYTES - text.len());
        std::fs::write(&path, format!("{text}{blanks}")).unwrap();
        assert!(read_manifest(&path).is_ok(), "as long as may be");
        std::fs::write(&path, " ".repeat(MAX_BYTES + 2)).unwrap();
        let fat = read_manifest(&path);
        assert!(matches!(
            fat,
            Err(ManifestError::TooLarge { bytes: 256_002 })
        ));
        let other = folder.path().join("agent.json");
        assert!(matches!(
            read_manifest(&other),
            Err(ManifestError::FileName)
        ));
        let inside = folder.path().join("x").join(FILE_NAME);
        std::fs::create_dir_all(&inside).unwrap();
        assert!(matches!(
            read_manifest(&inside),
            Err(ManifestError::NotAFile)
        ));
        #[cfg(target_os = "linux")]
        {
            // A file whose beginning cannot be read.
            std::fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink("/proc/self/mem", &path).unwrap();
            assert!(matches!(read_manifest(&path), Err(ManifestError::Read(_))));
        }
        // One that was found empty, and is not.
        let grown = read_bounded(std::io::repeat(b' '), 0);
        assert!(matches!(
            grown,
            Err(ManifestError::TooLarge { bytes: 256_001 })
        ));
    }
}

//! Errors in words for a person.

use std::error::Error;
use std::io;

/// An error with its causes, outermost first.
pub fn with_causes(err: &dyn Error) -> String {
    let mut said = err.to_string();
    let mut cause = err.source();
    while let Some(err) = cause {
        said = format!("{said}: {err}");
        cause = err.source();
    }
    said
}

/// What the system said about a path.
#[must_use]
pub fn about_path(err: &io::Error) -> String {
    match err.kind() {
        io::ErrorKind::NotFound => "no such file or folder".to_owned(),
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => "not a folder".to_owned(),
        kind => kind.to_string(),
    }
}

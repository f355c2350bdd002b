//! What the agent may do: small sums, counting words, and reading text below one folder.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ubos_common::json::{RawBuf, RawObject, decode};
use ubos_common::violation::Profile;
use upp::{FnTool, Tool, ToolError, object};

use super::calc::calculate;

/// Bytes of a file that may be read.
const LONGEST: u64 = 64 << 10;

/// The tools: reading only where there is a folder to read in.
///
/// # Errors
///
/// The folder is none.
pub(super) fn tools(folder: Option<&Path>) -> Result<Vec<Arc<dyn Tool>>, String> {
    let mut tools = vec![
        tool(
            "calc",
            "Works out a sum: numbers, + - * / ^ and brackets.",
            EXPRESSION,
            |arguments| {
                let wanted: Expression = read(&arguments)?;
                // Display writes a whole number without a fraction.
                let value = calculate(&wanted.expression)?.to_string();
                RawBuf::parse(&value).map_err(to_error)
            },
        )?,
        tool(
            "word_count",
            "Counts the words and characters of a text.",
            TEXT,
            |arguments| {
                let wanted: Text = read(&arguments)?;
                let words = wanted.text.split_whitespace().count();
                let characters = wanted.text.chars().count();
                let counted = format!(r#"{{"words":{words},"characters":{characters}}}"#);
                RawBuf::parse(&counted).map_err(to_error)
            },
        )?,
    ];
    if let Some(folder) = folder {
        let place = folder.display();
        let folder = folder
            .canonicalize()
            .map_err(|err| format!("{place}: {err}"))?;
        if !folder.is_dir() {
            return Err(format!("{place} is no folder"));
        }
        tools.push(tool(
            "read_file",
            "Reads a text file. Its path is relative to the folder that the user has opened.",
            PATH,
            move |arguments| {
                let wanted: Wanted = read(&arguments)?;
                let text = read_below(&folder, Path::new(&wanted.path))?;
                Ok(upp::json_text(&text))
            },
        )?);
    }
    Ok(tools)
}

const EXPRESSION: &str =
    r#"{"type":"object","properties":{"expression":{"type":"string"}},"required":["expression"]}"#;
const TEXT: &str =
    r#"{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}"#;
const PATH: &str =
    r#"{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}"#;

ubos_common::wire! {
    /// What `calc` is given.
    struct Expression {
        /// The sum.
        required expression: String = "expression", "";
    }
}

ubos_common::wire! {
    /// What `word_count` is given.
    struct Text {
        /// The text.
        required text: String = "text", "";
    }
}

ubos_common::wire! {
    /// What `read_file` is given.
    struct Wanted {
        /// Relative to the folder.
        required path: String = "path", "";
    }
}

fn tool(
    name: &str,
    about: &str,
    parameters: &str,
    run: impl Fn(RawObject) -> Result<RawBuf, ToolError> + Clone + Send + Sync + 'static,
) -> Result<Arc<dyn Tool>, String> {
    let parameters = object(parameters).map_err(|err| err.to_string())?;
    let run = move |arguments: RawObject, _| {
        let run = run.clone();
        // A disk may be slow: the terminal goes on meanwhile.
        async move {
            let done = tokio::task::spawn_blocking(move || run(arguments)).await;
            done.unwrap_or_else(|_| Err("the tool broke down".into()))
        }
    };
    Ok(Arc::new(FnTool::new(name, about, parameters, run)))
}

/// Arguments come from a model: nobody has checked them.
fn read<T: for<'a> ubos_common::json::Read<'a>>(arguments: &RawObject) -> Result<T, ToolError> {
    let bytes = arguments.as_str().as_bytes();
    let read = decode::<T>(
        bytes,
        &ubos_common::json::Limits::default(),
        Profile::Lenient,
    );
    read.map(|(value, _)| value).map_err(to_error)
}

fn to_error(err: impl std::fmt::Display) -> ToolError {
    ToolError(err.to_string().into())
}

/// The text of a file below a folder. Links that lead out of it are followed to where they lead, and refused.
fn read_below(folder: &Path, path: &Path) -> Result<String, ToolError> {
    let place: PathBuf = folder.join(path);
    let place = place
        .canonicalize()
        .map_err(|err| ToolError(format!("{}: {err}", path.display()).into()))?;
    if !place.starts_with(folder) {
        return Err("outside of the folder".into());
    }
    if !place.is_file() {
        return Err("no file".into());
    }
    #[expect(clippy::disallowed_types, reason = "files are what the tool reads")]
    let file = std::fs::File::open(&place).map_err(to_error)?;
    let mut bytes = Vec::new();
    file.take(LONGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(to_error)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > LONGEST) {
        return Err(ToolError(format!("longer than {LONGEST} bytes").into()));
    }
    String::from_utf8(bytes).map_err(|_| "no text".into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_are_read_below_the_folder_and_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap();
        let inner = folder.join("open");
        fs::create_dir_all(inner.join("deep")).unwrap();
        fs::write(inner.join("deep/a.txt"), "hello").unwrap();
        fs::write(folder.join("secret.txt"), "secret").unwrap();
        fs::write(inner.join("big"), vec![b'x'; (64 << 10) + 1]).unwrap();
        fs::write(inner.join("bytes"), [0xff, 0xfe]).unwrap();
        std::os::unix::fs::symlink("../secret.txt", inner.join("link")).unwrap();
        std::os::unix::fs::symlink("deep/a.txt", inner.join("good")).unwrap();
        let read = |path: &str| read_below(&inner, Path::new(path)).map_err(|err| err.to_string());
        assert_eq!(read("deep/a.txt").as_deref(), Ok("hello"));
        assert_eq!(read("good").as_deref(), Ok("hello"));
        for (path, said) in [
            ("../secret.txt", "outside"),
            ("/etc/passwd", "outside"),
            ("link", "outside"),
            ("deep", "no file"),
            ("nowhere", "nowhere"),
            ("big", "65536"),
            ("bytes", "no text"),
        ] {
            let why = read(path).unwrap_err();
            assert!(why.contains(said), "{path}: {why}");
        }
        assert!(tools(Some(&folder.join("nowhere"))).is_err());
        assert!(tools(Some(&folder.join("secret.txt"))).is_err());
        assert_eq!(tools(None).unwrap().len(), 2);
    }
}

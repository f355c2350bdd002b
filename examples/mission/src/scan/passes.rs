//! The five passes.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};
use ubos_common::secret::secret_shapes;

use super::walk::shown;
use super::{Entry, Folder, LARGEST, LISTED, Progress, ScanError, lines};

/// Counts of a folder or a language.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Language {
    /// Files.
    pub files: u64,
    /// Newline characters.
    pub lines: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A file that could not be read, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreadable {
    /// The file.
    pub path: String,
    /// Why.
    pub why: String,
}

/// Counts of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Files.
    pub files: u64,
    /// Newline characters.
    pub lines: u64,
    /// Bytes.
    pub bytes: u64,
    /// The same by language.
    pub languages: BTreeMap<String, Language>,
    /// Files and folders that could not be read.
    pub unreadable: Vec<Unreadable>,
    /// Such that are not listed.
    #[serde(default)]
    pub more_unreadable: u64,
}

/// A large file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Largest {
    /// The file.
    pub path: String,
    /// Its size.
    pub bytes: u64,
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Note {
    /// The file.
    pub path: String,
    /// The line, from 1.
    pub line: u64,
    /// What stands there.
    pub kind: String,
}

/// A list that is cut, with the number of entries that are not listed.
pub type Cut<T> = (Vec<T>, u64);

/// Files, lines and bytes, whole and by language.
pub fn languages(folder: &Folder, progress: &mut dyn Progress) -> Result<Figures, ScanError> {
    let mut unreadable = Vec::new();
    let files = folder.files(&mut |path, why| unreadable.push(Unreadable { path, why }))?;
    let mut figures = Figures::default();
    for_each(&files, progress, |entry| {
        let lines = match lines::count(&folder.at(entry)) {
            Ok(lines) => lines.unwrap_or(0),
            Err(err) => {
                unreadable.push(Unreadable {
                    path: shown(&entry.path),
                    why: err.kind().to_string(),
                });
                0
            }
        };
        let language = figures
            .languages
            .entry(language(entry).to_owned())
            .or_default();
        language.files += 1;
        language.lines += lines;
        language.bytes += entry.bytes;
        figures.files += 1;
        figures.lines += lines;
        figures.bytes += entry.bytes;
    })?;
    (figures.unreadable, figures.more_unreadable) = cut(unreadable);
    Ok(figures)
}

/// The largest files, largest first.
pub fn largest(folder: &Folder, _progress: &mut dyn Progress) -> Result<Vec<Largest>, ScanError> {
    let mut files = folder.files(&mut |_, _| {})?;
    files.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.path.cmp(&b.path)));
    files.truncate(LARGEST);
    Ok(files
        .iter()
        .map(|entry| Largest {
            path: shown(&entry.path),
            bytes: entry.bytes,
        })
        .collect())
}

/// Lines with the words TODO or FIXME.
pub fn notes(folder: &Folder, progress: &mut dyn Progress) -> Result<Cut<Note>, ScanError> {
    marked(folder, progress, &|line, found| {
        for word in ["TODO", "FIXME"] {
            if has_word(line, word) {
                found(word);
            }
        }
    })
}

/// Places that look like secrets; never their text.
pub fn secrets(folder: &Folder, progress: &mut dyn Progress) -> Result<Cut<Note>, ScanError> {
    marked(folder, progress, &|line, found| {
        let mut kinds: Vec<&str> = secret_shapes(line)
            .map(|shape| shape.kind.as_str())
            .collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds.into_iter().for_each(found);
    })
}

/// Files of equal content, each group in the order of its paths and cut as a list is.
pub fn duplicates(
    folder: &Folder,
    progress: &mut dyn Progress,
) -> Result<Cut<Vec<String>>, ScanError> {
    let files = folder.files(&mut |_, _| {})?;
    let mut by_size: Vec<&Entry> = files.iter().collect();
    by_size.sort_by_key(|entry| entry.bytes);
    let suspects = by_size
        .chunk_by(|a, b| a.bytes == b.bytes)
        .filter(|same| same.len() > 1);
    let mut by_content = Vec::new();
    for_each(suspects.flatten().copied(), progress, |entry| {
        // A file that cannot be read is no duplicate; the count of lines reports it.
        if let Ok(digest) = content_digest(folder, entry) {
            by_content.push((digest, entry));
        }
    })?;
    // A stable sort: equal digests stay in the order of their paths.
    by_content.sort_by_key(|(digest, _)| *digest);
    let mut unlisted = 0;
    let mut groups: Vec<Vec<String>> = by_content
        .chunk_by(|(a, _), (b, _)| a == b)
        .filter(|same| same.len() > 1)
        .map(|same| {
            unlisted += same.len().saturating_sub(LISTED) as u64;
            let listed = same.iter().take(LISTED);
            listed.map(|(_, entry)| shown(&entry.path)).collect()
        })
        .collect();
    groups.sort_unstable();
    let (groups, more) = cut(groups);
    Ok((groups, more + unlisted))
}

fn content_digest(folder: &Folder, entry: &Entry) -> io::Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    lines::pieces(&folder.at(entry), &mut |piece| {
        hasher.update(piece);
        true
    })?;
    Ok(*hasher.finalize().as_bytes())
}

/// What a line is looked at with: it calls back with each kind that it finds.
type Marks<'a> = &'a dyn Fn(&str, &mut dyn FnMut(&'static str));

fn marked(
    folder: &Folder,
    progress: &mut dyn Progress,
    marks: Marks<'_>,
) -> Result<Cut<Note>, ScanError> {
    let files = folder.files(&mut |_, _| {})?;
    let (mut listed, mut more) = (Vec::<Note>::new(), 0);
    for_each(&files, progress, |entry| {
        // The count of lines reports what cannot be read.
        let _ = lines::each(&folder.at(entry), &mut |line, text| {
            marks(text, &mut |kind| {
                let note = Note {
                    path: shown(&entry.path),
                    line,
                    kind: kind.to_owned(),
                };
                if listed.last() == Some(&note) {
                    // Two parts of one long line.
                } else if listed.len() < LISTED {
                    listed.push(note);
                } else {
                    more += 1;
                }
            });
        });
    })?;
    Ok((listed, more))
}

fn for_each<'a>(
    files: impl IntoIterator<Item = &'a Entry>,
    progress: &mut dyn Progress,
    mut each: impl FnMut(&'a Entry),
) -> Result<(), ScanError> {
    /// Files between two looks at the progress.
    const STRIDE: usize = 64;
    let mut done = 0;
    for entry in files {
        if done % STRIDE == 0 && !progress.files(done) {
            return Err(ScanError::Canceled);
        }
        each(entry);
        done += 1;
    }
    progress.files(done);
    Ok(())
}

fn cut<T>(mut list: Vec<T>) -> Cut<T> {
    let more = list.len().saturating_sub(LISTED) as u64;
    list.truncate(LISTED);
    (list, more)
}

/// Whether a word stands in a line with no letter, digit or underscore around it.
fn has_word(line: &str, word: &str) -> bool {
    let joined = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        let (before, rest) = line.split_at(at);
        !joined(before.chars().next_back())
            && !joined(
                rest.get(word.len()..)
                    .and_then(|after| after.chars().next()),
            )
    })
}

/// The language of a file, by its name.
fn language(entry: &Entry) -> &'static str {
    let name = entry.path.file_name().unwrap_or_default().to_string_lossy();
    match name.as_ref() {
        "Makefile" | "GNUmakefile" => return "Makefile",
        "Dockerfile" => return "Dockerfile",
        "CMakeLists.txt" => return "CMake",
        _ => {}
    }
    let extension = entry
        .path
        .extension()
        .unwrap_or_default()
        .to_string_lossy()
        .to_ascii_lowercase();
    BY_EXTENSION
        .iter()
        .find(|(known, _)| *known == extension)
        .map_or("Other", |(_, language)| language)
}

const BY_EXTENSION: [(&str, &str); 62] = [
    ("rs", "Rust"),
    ("c", "C"),
    ("h", "C"),
    ("cc", "C++"),
    ("cpp", "C++"),
    ("cxx", "C++"),
    ("hpp", "C++"),
    ("cs", "C#"),
    ("go", "Go"),
    ("java", "Java"),
    ("kt", "Kotlin"),
    ("scala", "Scala"),
    ("swift", "Swift"),
    ("m", "Objective-C"),
    ("zig", "Zig"),
    ("py", "Python"),
    ("rb", "Ruby"),
    ("pl", "Perl"),
    ("pm", "Perl"),
    ("php", "PHP"),
    ("lua", "Lua"),
    ("r", "R"),
    ("jl", "Julia"),
    ("ex", "Elixir"),
    ("exs", "Elixir"),
    ("erl", "Erlang"),
    ("hs", "Haskell"),
    ("ml", "OCaml"),
    ("clj", "Clojure"),
    ("dart", "Dart"),
    ("js", "JavaScript"),
    ("mjs", "JavaScript"),
    ("cjs", "JavaScript"),
    ("jsx", "JavaScript"),
    ("ts", "TypeScript"),
    ("tsx", "TypeScript"),
    ("vue", "Vue"),
    ("html", "HTML"),
    ("htm", "HTML"),
    ("css", "CSS"),
    ("scss", "CSS"),
    ("sh", "Shell"),
    ("bash", "Shell"),
    ("zsh", "Shell"),
    ("fish", "Shell"),
    ("ps1", "PowerShell"),
    ("bat", "Batch"),
    ("sql", "SQL"),
    ("proto", "Protocol Buffers"),
    ("graphql", "GraphQL"),
    ("json", "JSON"),
    ("yaml", "YAML"),
    ("yml", "YAML"),
    ("toml", "TOML"),
    ("xml", "XML"),
    ("ini", "INI"),
    ("md", "Markdown"),
    ("rst", "reStructuredText"),
    ("tex", "TeX"),
    ("txt", "Text"),
    ("csv", "CSV"),
    ("cmake", "CMake"),
];

//! What the passes found, put together.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use ubos_common::json::RawBuf;

use super::scan::{Figures, Largest, Note};

/// All findings of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// Counts.
    pub figures: Figures,
    /// Largest files, largest first.
    pub largest: Vec<Largest>,
    /// Lines with TODO or FIXME.
    pub notes: Vec<Note>,
    /// Such lines that are not listed.
    pub more_notes: u64,
    /// Groups of files of equal content.
    pub duplicates: Vec<Vec<String>>,
    /// Such groups that are not listed.
    pub more_duplicates: u64,
    /// Places that look like secrets.
    pub secrets: Vec<Note>,
    /// Such places that are not listed.
    pub more_secrets: u64,
}

#[derive(Deserialize)]
struct SizesOutput {
    largest: Vec<Largest>,
}

#[derive(Deserialize)]
struct NotesOutput {
    notes: Vec<Note>,
    more: u64,
}

#[derive(Deserialize)]
struct CopiesOutput {
    duplicates: Vec<Vec<String>>,
    more: u64,
}

#[derive(Deserialize)]
struct SecretsOutput {
    secrets: Vec<Note>,
    more: u64,
}

impl Findings {
    /// Puts the outputs of the passes together, in the order of [`PASSES`](super::plan::PASSES).
    pub fn merge(outputs: &[RawBuf]) -> Result<Self, String> {
        let [lines, sizes, notes, copies, secrets] = outputs else {
            return Err(format!("{} outputs of five passes", outputs.len()));
        };
        let sizes: SizesOutput = read("SIZES", sizes)?;
        let notes: NotesOutput = read("NOTES", notes)?;
        let copies: CopiesOutput = read("COPIES", copies)?;
        let secrets: SecretsOutput = read("SECRETS", secrets)?;
        Ok(Self {
            figures: read("LINES", lines)?,
            largest: sizes.largest,
            notes: notes.notes,
            more_notes: notes.more,
            duplicates: copies.duplicates,
            more_duplicates: copies.more,
            secrets: secrets.secrets,
            more_secrets: secrets.more,
        })
    }
}

/// Reads one output; an error names the pass and not the text.
pub fn read<T: DeserializeOwned>(what: &str, output: &RawBuf) -> Result<T, String> {
    serde_json::from_str(output.as_str()).map_err(|err| {
        format!(
            "the output of {what} is not what was expected at line {} column {}",
            err.line(),
            err.column()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_put_together_in_order() {
        let outputs = [
            r#"{"files":1,"lines":2,"bytes":3,"languages":{},"unreadable":[]}"#,
            r#"{"largest":[{"path":"a","bytes":3}]}"#,
            r#"{"notes":[{"path":"a","line":1,"kind":"TODO"}],"more":4}"#,
            r#"{"duplicates":[["a","b"]],"more":5}"#,
            r#"{"secrets":[],"more":6}"#,
        ]
        .map(|text| RawBuf::parse(text).unwrap());
        let findings = Findings::merge(&outputs).unwrap();
        assert_eq!(
            (
                findings.figures.bytes,
                findings.largest.len(),
                findings.duplicates[0].len()
            ),
            (3, 1, 2)
        );
        assert_eq!(
            (
                findings.more_notes,
                findings.more_duplicates,
                findings.more_secrets
            ),
            (4, 5, 6)
        );
        let mut swapped = outputs;
        swapped.swap(0, 1);
        assert!(Findings::merge(&swapped).unwrap_err().contains("SIZES"));
    }
}

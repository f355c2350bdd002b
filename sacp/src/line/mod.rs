//! The line form: a message for models, without the punctuation of JSON.
//!
//! It carries all that the JSON form does and reads back into the same message; only the white space between
//! the tokens of a raw value is lost. The first line has the goal
//! and the short members of the message; `ctx` has a line, and so has every act:
//!
//! ```text
//! FIND_HOTEL #abc123 human PENDING
//! ctx bdg 150 in 06-01 loc Paris am [wifi bf]
//! | s H_API c Paris p_max 150
//! | s B_API c Paris
//! join MERGE
//! p PRES n 5
//! ```
//!
//! [`GRAMMAR`] says it in a form to be put into a prompt. Text from others cannot leave its value: what is
//! not a plain word is quoted, and a quoted text has no line end.
//!
//! ```
//! use sacp::{AnyMessage, line};
//!
//! let text = "GREET #m1\nsay VOICE to [Ada \"Grace Hopper\"] loud true";
//! let message = line::read(text)?;
//! assert_eq!(
//!     message.encode(),
//!     br#"{"msg_id":"m1","g":"GREET","plan":[["say","VOICE",{"to":["Ada","Grace Hopper"],"loud":true}]]}"#
//! );
//! assert_eq!(line::write(&message), text);
//! # Ok::<(), line::LineError>(())
//! ```

mod read;
mod write;

pub use read::{LineError, read};
pub use write::write;

/// The line form as a part of a prompt: a model that reads it can write the form.
pub const GRAMMAR: &str = "\
A message is lines of words with one space between them.
value: a number, true, false, null, a word, \"a JSON string\", [value value], {key value key value}.
A text that could be read as anything else, is empty, or has a space or any of []{}\";\\ is a JSON string.
line 1: GOAL, then as needed: #msg_id >reply_to, human or raw or summary, a state, vVERSION, test.
Without a state a message of version 1.0.x is PENDING.
ctx key value key value: the context.
verb TOOL key value key value: one act, in order.
| before an act: it runs beside the other | acts next to it; || is a group in a group; | alone ends a group.
join TOOL: takes the outputs of the group before it.
@name value: any other member of the message.
Version 1.0.x only: id: verb TOOL key value ; depends_on [id id], and other members of the step behind the ;.
";

/// The state of a message of 1.0 that names none here: in JSON it has to.
const FIRST_STATE: &str = "PENDING";

/// How a line begins that is no act.
const CTX: &str = "ctx";

/// Whether a text can stand without quotes where a key or name is wanted.
fn is_word(text: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "_-./:%+*$&=?!~^'<>()@#,|".contains(c);
    let first = |c: char| !"#>@|".contains(c);
    text.chars().all(plain) && text.chars().next().is_some_and(first)
}

/// Whether a word would be read as a number, boolean or null.
fn is_scalar(word: &str) -> bool {
    match word.as_bytes().first() {
        Some(b'-' | b'0'..=b'9') => is_number(word),
        _ => matches!(word, "true" | "false" | "null"),
    }
}

fn is_number(word: &str) -> bool {
    let raw = ubos_common::json::RawBuf::parse(word);
    raw.is_ok_and(|raw| raw.as_str().len() == word.len())
}

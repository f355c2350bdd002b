//! SACP: whatever is read writes back, in either edition and in the line form, and is checked and drawn.

use sacp::check::{Config, Repair, check_plan};
use sacp::draw::{StepView, dot, mermaid};
use sacp::v1::down;
use sacp::validate::findings;
use sacp::{AliasTable, AnyMessage, Graph, MessageView, Reply, line};
use ubos_common::json::{self, Limits};
use ubos_common::violation::Profile;

/// The first byte chooses what the rest is read as.
pub fn check(bytes: &[u8]) {
    let Some((choice, text)) = bytes.split_first() else {
        return;
    };
    match choice % 4 {
        0 | 1 => any_message(text, *choice),
        2 => line_form(text),
        _ => parts(text),
    }
}

fn any_message(text: &[u8], choice: u8) {
    let profile = if choice & 4 == 0 {
        Profile::Strict
    } else {
        Profile::Lenient
    };
    let limits = Limits::default().with_max_depth(24);
    let report = findings(text, None);
    let decoded = AnyMessage::decode_with(text, &limits, profile);
    if let (Err(_), Profile::Strict) = (&decoded, profile) {
        assert!(AnyMessage::decode(text).is_ok() || !report.is_valid());
    }
    let _ = json::decode::<MessageView<'_>>(text, &limits, profile);
    let Ok((message, _)) = decoded else { return };
    let written = message.encode();
    let (again, _) =
        AnyMessage::decode_with(&written, &limits, profile).expect("what is written reads back");
    assert_eq!(again, message);
    assert_eq!(again.encode(), written);
    // What only the lenient let pass need not have the other forms.
    if AnyMessage::decode(&written).is_ok() {
        other_forms(&message);
    }
}

fn other_forms(message: &AnyMessage) {
    let told = line::write(message);
    let again = line::read(&told).expect("its own form");
    assert_eq!(tokens(&again.encode()), tokens(&message.encode()));
    let graph = Graph::from(message);
    assert!(!mermaid(&graph, |_| StepView::default()).is_empty());
    assert!(!dot(&graph, |_| StepView::default()).is_empty());
    let _ = check_plan(message, None, &Config::default());
    let table = AliasTable::default();
    if let Ok(long) = table.expand(message) {
        assert_eq!(table.expand(&long).as_ref(), Ok(&long));
    }
    if let AnyMessage::V10(new) = message
        && let Ok(old) = down(new, Profile::Lenient)
    {
        AnyMessage::decode(&old.message.encode()).expect("what is carried down is valid");
    }
}

fn line_form(text: &[u8]) {
    let Ok(text) = core::str::from_utf8(text) else {
        return;
    };
    match line::read(text) {
        Ok(message) => {
            let again = line::read(&line::write(&message)).expect("its own form");
            assert_eq!(tokens(&again.encode()), tokens(&message.encode()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The text without the white space between its tokens, which the line form does not carry.
fn tokens(json: &[u8]) -> Vec<u8> {
    let (mut quoted, mut escaped) = (false, false);
    let kept = json.iter().copied().filter(|byte| {
        if quoted {
            quoted = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
            return true;
        }
        quoted = *byte == b'"';
        !byte.is_ascii_whitespace()
    });
    kept.collect()
}

fn parts(text: &[u8]) {
    if let Ok(reply) = Reply::decode(text) {
        let written = json::to_vec(&reply);
        assert_eq!(Reply::decode(&written).as_ref(), Ok(&reply));
    }
    let Ok(text) = core::str::from_utf8(text) else {
        return;
    };
    if let Ok(change) = text.parse::<Repair>() {
        assert_eq!(json::to_string(&change).parse().as_ref(), Ok(&change));
    }
    if let Ok(table) = text.parse::<AliasTable>() {
        assert_eq!(table.to_string().parse().as_ref(), Ok(&table));
    }
}

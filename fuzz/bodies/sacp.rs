//! SACP: whatever is read writes back, in either edition and in the line form, and is checked and drawn.

use sacp::check::{Config, Finding, Repair, check_plan, mend, repair};
use sacp::draw::{StepView, dot, mermaid};
use sacp::registry::{AgentRecord, MemoryRegistry, Registry, ToolDef, VerbDef};
use sacp::v1::down;
use sacp::validate::findings;
use sacp::{AliasTable, AnyMessage, Graph, MessageView, Reply, line};
use ubos_common::json::{self, Limits, RawBuf};
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
    let library = library();
    converges(message, None);
    converges(message, Some(&library));
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

/// First repairs can be applied, and end within as many rounds as there were findings.
fn converges(message: &AnyMessage, registry: Option<&dyn Registry>) {
    /// Findings whose repairs are all tried.
    const TRIED: usize = 64;
    let check = |message: &AnyMessage| {
        check_plan(message, registry, &Config::default().with_max_fan_out(2))
    };
    let first = |findings: &[Finding]| {
        let mut repairs = findings.iter().flat_map(|finding| finding.repairs.first());
        repairs.next().cloned()
    };
    let mut findings = check(message);
    let (rounds, mut mended, mut applied) = (findings.len(), message.clone(), 0);
    while let Some(change) = first(&findings).filter(|_| rounds <= TRIED) {
        applied += 1;
        assert!(applied <= rounds, "{change}");
        mended = repair(&mended, &change).expect("a repair that is offered");
        findings = check(&mended);
    }
    let mended = mend(
        message.clone(),
        registry,
        &Config::default().with_max_fan_out(2),
    );
    assert!(rounds > TRIED || first(&mended.findings).is_none());
}

/// A few of the words that generated messages are made of.
fn library() -> MemoryRegistry {
    let mut library = MemoryRegistry::default();
    let verb = |name: &str, inputs: &[&str], outputs: &str| {
        let raw = |text: &str| RawBuf::parse(text).expect("JSON");
        let inputs = inputs.iter().map(|input| raw(input)).collect();
        VerbDef::new(name.to_owned(), "d".to_owned(), inputs, raw(outputs))
    };
    let city = r#"{"name":"city","type":"string"}"#;
    let budget = r#"{"name":"budget","type":"number","required":false}"#;
    let verbs = [
        verb("search", &[city, budget], r#"{"plan":"array"}"#),
        verb(
            "fetch",
            &[r#"{"name":"plan","type":"array"}"#],
            "\"string\"",
        ),
        verb(
            "g",
            &[r#"{"name":"c","type":"integer"}"#, r#""ctx.bdg""#],
            "\"any\"",
        ),
    ];
    let names: Vec<String> = verbs.iter().map(|verb| verb.name.clone()).collect();
    for verb in verbs {
        library.add_verb(verb).expect("a new verb");
    }
    let (tool, agent) = ("H_API".to_owned(), "A".to_owned());
    library
        .add_tool(ToolDef::new(tool.clone(), "d".to_owned(), names.clone()))
        .expect("a new tool");
    let agent = AgentRecord::new(agent, names, vec![tool], vec![], vec![], "d".to_owned());
    library.add_agent(agent).expect("a new agent");
    library
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

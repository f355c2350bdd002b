//! Mermaid.

use core::fmt::Write as _;

use super::{Arrows, StepState, StepView, label, node};
use crate::graph::Graph;

/// The plan as a Mermaid flowchart; `view` says what is shown of each step, by number.
// impl: SACP-3-6
#[must_use]
pub fn mermaid(graph: &Graph, view: impl Fn(usize) -> StepView) -> String {
    let mut text = String::from("flowchart TD\n");
    for (n, scope) in graph.scopes().iter().enumerate() {
        let inner = n > 0;
        let indent = if inner { "    " } else { "  " };
        if inner {
            line(
                &mut text,
                &format!("  subgraph t{n}[\"{}\"]", escape(&scope.goal)),
            );
        }
        for step in scope
            .steps
            .iter()
            .chain(&scope.last)
            .filter_map(|number| graph.step(*number))
        {
            let seen = view(step.number);
            let name = node(step.number);
            let words = escape(&label(step, seen));
            line(
                &mut text,
                &format!("{indent}{name}[\"{words}\"]:::{}", seen.state.as_str()),
            );
        }
        if inner {
            line(&mut text, "  end");
        }
    }
    let arrows = Arrows::of(graph);
    for bar in &arrows.bars {
        line(&mut text, &format!("  {bar}(( ))"));
    }
    for edge in &arrows.edges {
        let arrow = match edge.why {
            Some(why) => format!("-. {why} .->"),
            None => "-->".to_owned(),
        };
        line(&mut text, &format!("  {} {arrow} {}", edge.from, edge.to));
    }
    for state in StepState::ALL {
        let colour = state.colour();
        line(
            &mut text,
            &format!(
                "  classDef {} fill:{colour},stroke:#555,color:#000",
                state.as_str()
            ),
        );
    }
    text
}

fn line(text: &mut String, line: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{line}");
}

/// A text inside a quoted label: all but plain characters become numbered entities.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_alphanumeric() || " _-./:,".contains(c) {
            escaped.push(c);
        } else if !c.is_control() {
            let _ = write!(escaped, "#{};", u32::from(c));
        }
    }
    escaped
}

//! DOT, the language of Graphviz.

use core::fmt::Write as _;

use super::{Arrows, StepView, label, node};
use crate::graph::Graph;

/// The plan as a DOT digraph; `view` says what is shown of each step, by number.
// impl: SACP-3-6
#[must_use]
pub fn dot(graph: &Graph, view: impl Fn(usize) -> StepView) -> String {
    let mut text = String::from("digraph plan {\n  node [shape=box, style=filled];\n");
    for (n, scope) in graph.scopes().iter().enumerate() {
        let inner = n > 0;
        if inner {
            line(
                &mut text,
                &format!(
                    "  subgraph cluster_{n} {{ label=\"{}\";",
                    escape(&scope.goal)
                ),
            );
        }
        for step in scope
            .steps
            .iter()
            .chain(&scope.last)
            .filter_map(|number| graph.step(*number))
        {
            let seen = view(step.number);
            let (name, words) = (node(step.number), escape(&label(step, seen)));
            let colour = seen.state.colour();
            line(
                &mut text,
                &format!("  {name} [label=\"{words}\", fillcolor=\"{colour}\"];"),
            );
        }
        if inner {
            line(&mut text, "  }");
        }
    }
    let arrows = Arrows::of(graph);
    for bar in &arrows.bars {
        line(&mut text, &format!("  {bar} [shape=point];"));
    }
    for edge in &arrows.edges {
        let why = match edge.why {
            Some(why) => format!(" [style=dashed, label=\"{why}\"]"),
            None => String::new(),
        };
        line(&mut text, &format!("  {} -> {}{why};", edge.from, edge.to));
    }
    text.push_str("}\n");
    text
}

fn line(text: &mut String, line: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{line}");
}

/// A text inside a quoted label.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars().filter(|c| !c.is_control()) {
        if matches!(c, '"' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

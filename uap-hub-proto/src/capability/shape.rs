//! What the payloads of a job are to requirements.

use std::sync::Arc;

use crate::wire::Payload;

/// What the payloads of a job are to requirements: jobs of one shape can be done by the same agents.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape(Arc<[SameType]>);

/// The payloads of one type. They are in the order of their types in a shape.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SameType {
    pub(super) kind: Box<str>,
    pub(super) repeat: bool,
    /// In order, each once; `None` for a payload without an attachment.
    pub(super) mime_types: Vec<Option<Box<str>>>,
}

impl Shape {
    pub(crate) fn of(payloads: &[Payload]) -> Self {
        let mime_of = |payload: &Payload| {
            let attachment = payload.attachment.as_ref();
            attachment.map(|attachment| essence(&attachment.mime_type))
        };
        let mut all: Vec<&Payload> = payloads.iter().collect();
        all.sort_by_key(|payload| &payload.r#type);
        let same = all.chunk_by(|one, next| one.r#type == next.r#type);
        let types = same.filter_map(|same| {
            let mut mime_types: Vec<_> = same.iter().map(|payload| mime_of(payload)).collect();
            mime_types.sort_unstable();
            mime_types.dedup();
            Some(SameType {
                kind: same.first()?.r#type.as_str().into(),
                repeat: same.len() > 1,
                mime_types,
            })
        });
        Self(types.collect())
    }

    /// The payload types, in order.
    pub(super) fn types(&self) -> &[SameType] {
        &self.0
    }

    pub(super) fn of_type(&self, kind: &str) -> Option<&SameType> {
        let at = self.0.binary_search_by(|same| (*same.kind).cmp(kind));
        self.0.get(at.ok()?)
    }

    /// The approximate bytes that it takes.
    pub(crate) fn weight(&self) -> usize {
        let texts = |same: &SameType| {
            let mime_types = same.mime_types.iter().flatten();
            let mime_types = mime_types.map(|mime| mime.len());
            let list = same.mime_types.capacity() * size_of::<Option<Box<str>>>();
            same.kind.len() + list + mime_types.sum::<usize>()
        };
        size_of_val(&*self.0) + self.0.iter().map(texts).sum::<usize>()
    }
}

/// A MIME type without its parameters, in lower case.
pub(super) fn essence(mime: &str) -> Box<str> {
    let essence = mime.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec: HUB-3-2
    #[test]
    fn jobs_that_ask_the_same_have_one_shape() {
        let file = |kind, mime| Payload::file(kind, "n", mime, "x");
        let of_many = |count| Shape::of(&vec![file("a", "text/plain"); count]);
        assert_eq!(of_many(2), of_many(3));
        let same = [file("a", "Text/Plain; x=y"), file("b", "")];
        let too = [file("b", ""), file("a", "text/plain")];
        assert_eq!(Shape::of(&same), Shape::of(&too));
        for other in [
            vec![file("a", "text/plain")],
            vec![file("a", "text/plain"), file("b", ""), file("b", "")],
            vec![file("a", "text/html"), file("b", "")],
            vec![file("a", "text/plain"), Payload::new("b")],
        ] {
            assert_ne!(Shape::of(&same), Shape::of(&other));
        }
    }

    #[test]
    fn a_shape_weighs_what_its_texts_do() {
        let weight =
            |kind: &str, mime: &str| Shape::of(&[Payload::file(kind, "n", mime, "x")]).weight();
        let long = "x".repeat(1000);
        assert_eq!(weight(&long, "a") - weight("", "a"), 1000);
        assert_eq!(weight("", &long) - weight("", ""), 1000);
        let many: Vec<_> = (0..100)
            .map(|n: usize| Payload::new(n.to_string()))
            .collect();
        assert!(Shape::of(&many).weight() > 100 * size_of::<SameType>());
    }
}

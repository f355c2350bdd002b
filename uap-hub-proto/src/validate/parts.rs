//! Parts that several messages share.

use prost_types::Timestamp;
use ubos_common::violation::Level;

use super::Walk;
use crate::{
    convert::{ConvertError, from_duration, from_struct, from_timestamp},
    wire::{Attachment, Payload, Summary},
};

pub(super) fn payloads(walk: &mut Walk, name: &str, all: &[Payload]) {
    walk.each(name, all, |payload, walk| {
        if payload.r#type.is_empty() {
            walk.at("type", |walk| {
                walk.should("empty", "HUB-4-9", "a payload of no type");
            });
        }
        if let Some(file) = &payload.attachment {
            walk.at("attachment", |walk| attachment(file, walk));
        }
        if let Some(metadata) = &payload.metadata {
            free_form(walk, metadata);
        }
    });
}

pub(super) fn attachments(walk: &mut Walk, all: &[Attachment]) {
    walk.each("attachments", all, attachment);
}

fn attachment(file: &Attachment, walk: &mut Walk) {
    if !file.mime_type.is_empty() && !is_mime(&file.mime_type) {
        walk.at("mime_type", |walk| {
            walk.advise("mime", "HUB-3-2", "type/subtype is wanted");
        });
    }
}

/// Whether a text looks like `type/subtype`, with or without parameters.
pub(super) fn is_mime(text: &str) -> bool {
    let essence = text.split(';').next().unwrap_or_default().trim();
    essence.split_once('/').is_some_and(|(kind, sub)| {
        let is_token = |part: &str| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_graphic() && b != b'/')
        };
        is_token(kind) && is_token(sub)
    })
}

pub(super) fn summary(walk: &mut Walk, summary: Option<&Summary>) {
    let Some(summary) = summary else { return };
    walk.at("summary", |walk| {
        if let Some(took) = &summary.total_duration
            && from_duration(took).is_err()
        {
            walk.at("total_duration", |walk| {
                walk.should(
                    "range",
                    "HUB-4-2",
                    "a duration that is negative or out of range",
                );
            });
        }
        if let Some(at) = &summary.start_time {
            timestamp(walk, "start_time", at);
        }
        if let Some(metadata) = &summary.metadata {
            free_form(walk, metadata);
        }
    });
}

pub(super) fn timestamp(walk: &mut Walk, name: &str, at: &Timestamp) {
    if from_timestamp(at).is_err() {
        walk.at(name, |walk| {
            let words =
                "a moment outside the years 0000 to 9999, or its nanoseconds outside a second";
            walk.should("range", "HUB-4-2", words);
        });
    }
}

/// A `Struct` that JSON can express.
fn free_form(walk: &mut Walk, metadata: &prost_types::Struct) {
    let Err(error) = from_struct(metadata) else {
        return;
    };
    let (code, words) = match &error {
        ConvertError::NotFinite { .. } => ("not_finite", "a number that JSON has no word for"),
        ConvertError::NoKind { .. } => ("no_kind", "a value that does not say what it is"),
        _ => ("too_deep", "values nested deeper than 64"),
    };
    let pointer = error.pointer().unwrap_or_default().to_owned();
    walk.at("metadata", |walk| {
        walk.path.push_str(&pointer);
        walk.find(Level::Should, code, "HUB-4-9", words);
    });
}

//! The messages of `Register` and `Listen`.

use std::collections::BTreeSet;

use ubos_common::violation::Level;

use super::{Walk, validate};
use crate::{
    capability::{Kind, MAX_CAPABILITIES, MAX_ENTRIES, MAX_NAME_BYTES, MAX_REQUIREMENTS, entries},
    wire::{
        AgentRegistration, AgentRegistrationResponse, Capability, ListenRequest, ListenResponse,
        PayloadRequirement, SessionAcceptance, SessionProposal, capability::Format, listen_request,
        listen_response, session_proposal::Details,
    },
};

validate! {
    AgentRegistration by registration;
    AgentRegistrationResponse by registered;
    ListenRequest by listen_request;
    ListenResponse by listen_response;
}

// impl: HUB-2-1
fn registration(message: &AgentRegistration, walk: &mut Walk) {
    short(walk, "display_name", &message.display_name);
    few(
        walk,
        "capabilities",
        message.capabilities.len(),
        MAX_CAPABILITIES,
    );
    let all = entries(message);
    few(walk, "capabilities", all, MAX_ENTRIES);
    let mut seen = BTreeSet::new();
    let few = message.capabilities.get(..MAX_CAPABILITIES);
    let listed = few.unwrap_or(&message.capabilities);
    walk.each("capabilities", listed, |one, walk| {
        if let Some((kind, name)) = capability(one, walk)
            && !seen.insert((kind, name.to_owned()))
        {
            let words = "this kind and type was said before, and counts as it was said first";
            walk.advise("repeated", "HUB-2-1", words);
        }
    });
}

fn capability<'a>(message: &'a Capability, walk: &mut Walk) -> Option<(Kind, &'a str)> {
    match &message.format {
        None => {
            walk.at("format", |walk| {
                walk.must(
                    "missing",
                    "HUB-2-1",
                    "a capability is a test or a translation",
                );
            });
            None
        }
        Some(Format::Test(test)) => {
            walk.at("test", |walk| {
                named(walk, &test.r#type);
                requirements(walk, "payloads", &test.payloads);
            });
            Some((Kind::Test, &test.r#type))
        }
        Some(Format::Translation(to)) => {
            walk.at("translation", |walk| {
                named(walk, &to.r#type);
                requirements(walk, "source_payloads", &to.source_payloads);
                requirements(walk, "target_payloads", &to.target_payloads);
            });
            Some((Kind::Translation, &to.r#type))
        }
    }
}

fn named(walk: &mut Walk, name: &str) {
    walk.filled("type", name, "HUB-2-1");
    short(walk, "type", name);
}

fn requirements(walk: &mut Walk, name: &str, all: &[PayloadRequirement]) {
    few(walk, name, all.len(), MAX_REQUIREMENTS);
    let listed = all.get(..MAX_REQUIREMENTS).unwrap_or(all);
    walk.each(name, listed, |one, walk| {
        if one.r#type.is_empty() {
            walk.at("type", |walk| {
                walk.should("empty", "HUB-3-2", "a requirement of no payload type");
            });
        }
        short(walk, "type", &one.r#type);
        few(
            walk,
            "accepted_mime_types",
            one.accepted_mime_types.len(),
            MAX_REQUIREMENTS,
        );
        let mimes = &one.accepted_mime_types;
        let mimes = mimes.get(..MAX_REQUIREMENTS).unwrap_or(mimes);
        walk.each("accepted_mime_types", mimes, |mime, walk| {
            if !super::parts::is_mime(mime) {
                walk.advise(
                    "mime",
                    "HUB-3-2",
                    "type/subtype is wanted; nothing meets this",
                );
            }
            too_long(walk, mime);
        });
    });
}

fn short(walk: &mut Walk, name: &str, text: &str) {
    walk.at(name, |walk| too_long(walk, text));
}

fn too_long(walk: &mut Walk, text: &str) {
    if text.len() > MAX_NAME_BYTES {
        let words = format!("{} bytes, at most {MAX_NAME_BYTES} are taken", text.len());
        walk.find(Level::Must, "too_long", "HUB-2-1", words);
    }
}

fn few(walk: &mut Walk, name: &str, seen: usize, most: usize) {
    if seen > most {
        walk.at(name, |walk| {
            let words = format!("{seen} entries, at most {most} are taken");
            walk.find(Level::Must, "too_many", "HUB-2-1", words);
        });
    }
}

fn registered(message: &AgentRegistrationResponse, walk: &mut Walk) {
    walk.id("client_id", &message.client_id, "HUB-2-1");
}

fn listen_request(message: &ListenRequest, walk: &mut Walk) {
    match &message.event {
        None => walk.advise(
            "no_event",
            "HUB-3-3",
            "a message that says nothing is ignored",
        ),
        Some(listen_request::Event::Ready(())) => {}
        Some(listen_request::Event::SessionAcceptance(answer)) => {
            walk.at("session_acceptance", |walk| acceptance(answer, walk));
        }
    }
}

fn acceptance(message: &SessionAcceptance, walk: &mut Walk) {
    walk.filled("session_id", &message.session_id, "HUB-3-3");
    if !message.accepted && message.reason.is_empty() {
        walk.at("reason", |walk| {
            walk.advise("empty", "HUB-3-1", "a refusal without a reason");
        });
    }
}

// impl: HUB-3-3
fn listen_response(message: &ListenResponse, walk: &mut Walk) {
    match &message.event {
        None => walk.advise(
            "no_event",
            "HUB-3-1",
            "a message that says nothing is ignored",
        ),
        Some(listen_response::Event::SessionReady(ready)) => walk.at("session_ready", |walk| {
            walk.id("session_id", &ready.session_id, "HUB-3-1");
        }),
        Some(listen_response::Event::SessionProposal(offer)) => {
            walk.at("session_proposal", |walk| proposal(offer, walk));
        }
    }
}

// impl: HUB-3-1
fn proposal(message: &SessionProposal, walk: &mut Walk) {
    walk.id("session_id", &message.session_id, "HUB-3-1");
    let prefix = match &message.details {
        None => {
            walk.at("details", |walk| {
                walk.must(
                    "missing",
                    "HUB-3-1",
                    "a proposal is of a test or a translation",
                );
            });
            return;
        }
        Some(Details::Test(test)) => {
            walk.at("test", |walk| walk.filled("type", &test.r#type, "HUB-3-1"));
            "JOB-"
        }
        Some(Details::Translation(to)) => {
            walk.at("translation", |walk| {
                walk.filled("type", &to.r#type, "HUB-3-1");
            });
            "TRN-"
        }
    };
    if !message.session_id.starts_with(prefix) {
        walk.at("session_id", |walk| {
            let words = "deployed hubs route by a prefix: JOB- of tests, TRN- of translations";
            walk.advise("prefix", "HUB-3-1", words);
        });
    }
}

//! Registration, as the core judges it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ubos_common::json::{Limits, RawBuf, RawObject, Reader};
use ubos_common::time::Now;
use ubos_common::violation::{PointerText, Profile};

use super::schemas::{Candidate, Registration, SchemaCheck, SchemaVerdicts, Verdict};
use super::state::{CoreConnection, Event, Output};
use crate::envelope::{Envelope, Head};
use crate::error::{ConnectionError, ErrorCode, ErrorObject};
use crate::ledger::{Charge, Share};
use crate::limits::{MAX_TOOL_ID_BYTES, MAX_TOOLS};
use crate::message::{
    MessageType, Register, Registered, Rejected, ToolSpec, Unregister, Unregistered, is_tool_name,
};
use crate::role::common::Connection as _;

impl CoreConnection {
    // impl: OSW-4.2-4, OSW-4.2-6
    pub(super) fn on_register(&mut self, now: Now, envelope: &Envelope<'_>, register: &Register) {
        let most = MAX_TOOLS;
        if register.tools.len() > most {
            return self.refuse_registration(now, envelope, most);
        }
        let mut charge = Charge::on(&self.ledger, Share::Tools);
        let tools = register.tools.iter();
        let tools = tools.map(|tool| self.read_tool(tool, &mut charge));
        let registration = Registration {
            id: (*envelope.id).into(),
            replace: register.replace == Some(true),
            tools: tools.collect(),
            charge,
        };
        let new = (registration.tools.iter())
            .filter(|candidate| candidate.is_new)
            .filter_map(|candidate| candidate.tool.as_ref().ok().cloned());
        let check = SchemaCheck::of(new.collect());
        if check.tools.is_empty() || !self.config.schemas_apart {
            return self.register(now, registration, check.run());
        }
        self.registration = Some(Box::new(registration));
        self.common.pause();
        self.watch_silence(now);
        self.common.out.push(Output::CheckSchemas(check));
    }

    /// Goes on with a registration, after [`Output::CheckSchemas`], and with what has come behind it. Without one that waits
    /// nothing happens.
    ///
    /// # Errors
    ///
    /// What has come behind it broke the protocol: see [`handle_input`](Self::handle_input).
    ///
    /// Spec: OpenSentience 4.2
    pub fn take_verdicts(
        &mut self,
        now: Now,
        verdicts: SchemaVerdicts,
    ) -> Result<(), ConnectionError> {
        let Some(registration) = self.registration.take() else {
            return Ok(());
        };
        self.register(now, *registration, verdicts);
        let result = match self.throttle.is_active {
            // What it has sent behind it waits with the rest.
            true => Ok(()),
            false => self.resume(now),
        };
        if self.session().is_some() {
            self.watch_silence(now);
        }
        result
    }

    // impl: OSW-4.2-2
    fn register(&mut self, now: Now, registration: Registration, verdicts: SchemaVerdicts) {
        let before = self.tools.clone();
        if registration.replace {
            self.tools.clear();
            self.tool_charge.shrink_to(0);
        }
        let mut charge = registration.charge;
        let cost = verdicts.0.iter().map(|verdict| verdict.cost).sum();
        // Whatever is charged counts for 1 KiB at least.
        if cost > 0 {
            self.charge(now, cost);
        }
        let mut reply = Registered::new(Vec::new());
        let mut verdicts = verdicts.0.into_iter();
        let mut named = BTreeSet::new();
        for Candidate { tool, is_new } in registration.tools {
            // One for each that is new, rejected or not.
            let verdict = match &tool {
                Ok(_) if is_new => verdicts.next().unwrap_or_else(unchecked).unusable,
                _ => None,
            };
            // An agent, too, takes the first of two with one name, whatever becomes of it.
            let id = match &tool {
                Ok(tool) => &tool.tool_id,
                Err(rejected) => &rejected.tool_id,
            };
            let is_first = id.is_empty() || named.insert(id.clone());
            match tool.and_then(|tool| self.judge(tool, is_first, &before, verdict)) {
                Ok(tool) => {
                    reply.registered.push(tool.tool_id.clone());
                    // It was entered when it was read.
                    if let Some(own) = charge.split(tool.weight()) {
                        self.tool_charge.merge(own);
                    }
                    self.tools.insert(tool.tool_id.as_str().into(), tool);
                }
                Err(rejected) => reply.rejected.get_or_insert_default().push(*rejected),
            }
        }
        let head = Head::new(MessageType::Registered).in_reply_to(Some(&registration.id));
        self.transmit(now, &head, &reply);
        let tools = self.tools.values().map(Arc::as_ptr);
        // The first registration is one even without tools.
        if before.is_empty() || !tools.eq(before.values().map(Arc::as_ptr)) {
            self.event(Event::ToolsChanged);
        }
        for rejected in reply.rejected.into_iter().flatten() {
            self.event(Event::ToolRejected(rejected));
        }
    }

    /// Answering each tool of an endless list would cost more than the list.
    fn refuse_registration(&mut self, now: Now, envelope: &Envelope<'_>, most: usize) {
        let code = ErrorCode::InvalidMessage;
        let error = ErrorObject::of(code.clone(), format!("more than {most} tools"));
        let head = Head::new(MessageType::CoreError).error(&error);
        let head = head.in_reply_to(Some(&envelope.id));
        self.transmit(now, &head, &RawObject::empty());
        self.reject(now, code, "too many tools in one registration");
    }

    // impl: OSW-4.2-5
    pub(super) fn on_unregister(&mut self, now: Now, envelope: &Envelope<'_>, gone: &Unregister) {
        let ids = gone.tool_ids.iter();
        let mut removed = Vec::new();
        for id in ids {
            if let Some(tool) = self.tools.remove(id.as_str()) {
                self.tool_charge.shrink(tool.weight());
                removed.push(id.clone());
            }
        }
        let head = Head::new(MessageType::Unregistered).in_reply_to(Some(&envelope.id));
        let has_removed = !removed.is_empty();
        self.transmit(now, &head, &Unregistered::new(removed));
        if has_removed {
            self.event(Event::ToolsChanged);
        }
    }

    /// Reads a declaration, and enters it.
    // impl: OSW-4.2-3
    fn read_tool(&self, raw: &RawBuf, charge: &mut Charge) -> Candidate {
        let tool = match ToolSpec::read(raw.as_raw(), &self.config.limits.json) {
            Ok(tool) => tool,
            Err(findings) => {
                let bad_id = findings.iter().any(|f| f.pointer == "/tool_id");
                let code = if bad_id {
                    ErrorCode::ToolInvalidId
                } else {
                    ErrorCode::ToolInvalidSchema
                };
                let first = findings.iter().next().map_or("", |f| f.pointer.as_str());
                let message = format!("wrong or lacking at {}", PointerText(clip(first, 64)));
                return Candidate {
                    tool: Err(rejected(&named(raw), code, message)),
                    is_new: false,
                };
            }
        };
        let bytes = tool.weight();
        if charge.bytes() + bytes > self.session_tool_bytes() || !charge.grow(bytes) {
            return Candidate {
                tool: Err(rejected(
                    &tool.tool_id,
                    ErrorCode::ToolConflict,
                    NO_ROOM.into(),
                )),
                is_new: false,
            };
        }
        let known = self.tools.get(tool.tool_id.as_str());
        Candidate {
            is_new: known.is_none_or(|known| !known.has_same_schemas(&tool)),
            tool: Ok(tool.into()),
        }
    }

    /// The bytes that the tools of this session may have, and again those that are being registered: the other half of the
    /// share is for a session that takes the place of this one.
    fn session_tool_bytes(&self) -> usize {
        self.ledger.max_bytes_of(Share::Tools) / 4
    }

    /// The tool, unless it is refused. One that stood there before as it is now is the same one.
    // impl: OSW-4.2-1, OSW-4.2-3
    fn judge(
        &self,
        tool: Arc<ToolSpec>,
        is_first: bool,
        before: &BTreeMap<Box<str>, Arc<ToolSpec>>,
        unusable: Option<String>,
    ) -> Result<Arc<ToolSpec>, Box<Rejected>> {
        let own = tool.tool_id.strip_prefix(&*self.agent_id);
        let name = own.and_then(|rest| rest.strip_prefix('/'));
        let (code, message) = if name != Some(tool.name.as_str()) || !is_tool_name(&tool.name) {
            let message = "the id must be the agent's, a slash and the name";
            (ErrorCode::ToolInvalidId, message)
        } else if tool.tool_id.len() > MAX_TOOL_ID_BYTES {
            (ErrorCode::ToolInvalidId, "the id is too long")
        } else if !is_first || self.tools.contains_key(tool.tool_id.as_str()) {
            (ErrorCode::ToolConflict, "the name is taken")
        } else if self.tools.len() >= MAX_TOOLS {
            let message = "the session has as many tools as it may";
            (ErrorCode::ToolConflict, message)
        } else if self.tool_charge.bytes() + tool.weight() > self.session_tool_bytes() {
            (ErrorCode::ToolConflict, NO_ROOM)
        } else if let Some(why) = unusable {
            let code = ErrorCode::ToolInvalidSchema;
            return Err(rejected(&tool.tool_id, code, why));
        } else {
            return Ok(match before.get(tool.tool_id.as_str()) {
                Some(old) if **old == *tool => Arc::clone(old),
                _ => tool,
            });
        };
        let message = message.to_owned();
        Err(rejected(&tool.tool_id, code, message))
    }
}

/// Why a tool is rejected that is too long.
const NO_ROOM: &str = "the session's tools have as many bytes as they may";

/// Of a tool that was left out of the verdicts.
fn unchecked() -> Verdict {
    Verdict::unchecked("the schemas were not checked")
}

fn rejected(id: &str, code: ErrorCode, message: String) -> Box<Rejected> {
    let error = ErrorObject::of(code, message);
    Box::new(Rejected::new(clip(id, MAX_TOOL_ID_BYTES).into(), error))
}

/// The id that a wrong declaration gives itself; empty where it gives none.
fn named(raw: &RawBuf) -> String {
    let mut found = String::new();
    let limits = Limits::default();
    let mut reader = Reader::of_raw(raw.as_raw(), &limits, Profile::Strict);
    // What is no object gives itself no id.
    let _ = reader.object(|reader, name| {
        if name != "tool_id" {
            return reader.skip();
        }
        let mark = reader.mark();
        let id = reader.str();
        found = reader.settle(mark, id)?.unwrap_or_default().into_owned();
        Ok(())
    });
    found
}

/// The beginning of a text, at most `bytes` of it.
fn clip(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rfind(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

//! Who stands behind a message, and on whose behalf a tool is called.

ubos_common::words! {
    /// What kind of actor somebody is.
    closed pub enum ActorType {
        /// A person.
        Human = "human",
        /// An agent.
        Agent = "agent",
        /// The system itself.
        System = "system",
    }
}

ubos_common::wire! {
    /// Who stands behind a message. Metadata: never a reason to permit anything.
    ///
    /// Spec: OpenSentience 3.2
    // impl: OSW-3-5
    pub struct Actor {
        /// The kind.
        required kind: ActorType = "type", "OSW-3-5";
        /// Who it is.
        required id: String = "id", "OSW-3-5";
        /// A name to show.
        nullable display: String = "display", "OSW-3-5";
    }
}

impl Actor {
    /// The bytes that it holds.
    pub(crate) fn weight(&self) -> usize {
        let display = self.display.as_ref().map_or(0, String::len);
        self.kind.as_str().len() + self.id.len() + display + self.extra.bytes()
    }
}

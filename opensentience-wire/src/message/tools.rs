//! Which tools an agent offers.

use ubos_common::json::{self, Raw, RawBuf, RawObject};
use ubos_common::violation::{Profile, Report};

use crate::error::ErrorObject;

ubos_common::wire! {
    /// One tool, as its agent declares it.
    ///
    /// Spec: OpenSentience 4.2.1
    // impl: OSW-4.2-6
    pub struct ToolSpec {
        /// `agent_id/name`.
        required tool_id: String = "tool_id", "OSW-4.2-1";
        /// The name without the agent.
        required name: String = "name", "OSW-4.2-3";
        /// Its purpose, for a model or person that chooses a tool.
        required description: String = "description", "OSW-4.2-3";
        /// JSON Schema of the input.
        required input_schema: RawObject = "input_schema", "OSW-4.2-3";
        /// JSON Schema of the output.
        nullable output_schema: RawObject = "output_schema", "OSW-4.2-6";
        /// Optional abilities such as `streaming`.
        nullable capabilities: Vec<String> = "capabilities", "OSW-4.2-6";
        /// Whether it changes anything.
        nullable side_effects: bool = "side_effects", "OSW-4.2-6";
        /// Whether it is only called for a directive.
        nullable requires_directive: bool = "requires_directive", "OSW-4.2-6";
        /// Groups for display.
        nullable tags: Vec<String> = "tags", "OSW-4.2-6";
    }
}

/// The tools of a session, shared by all who look at them.
#[cfg(feature = "tokio")]
pub(crate) type SharedTools = std::sync::Arc<[std::sync::Arc<ToolSpec>]>;

impl ToolSpec {
    /// A tool whose id an agent completes with its own when it registers: for agents that learn their id
    /// at their launch.
    #[must_use]
    pub fn local(name: &str, description: &str, input_schema: RawObject) -> Self {
        Self::new(String::new(), name.into(), description.into(), input_schema)
    }

    /// A tool that its types declare: its name without the agent, its purpose, and the schemas of input and output. The types
    /// must be written as objects; the input of one without members, such as `()`, is any object.
    ///
    /// ```
    /// use opensentience_wire::message::ToolSpec;
    ///
    /// #[derive(schemars::JsonSchema)]
    /// struct Greet { name: String }
    ///
    /// let tool = ToolSpec::of_types::<Greet, ()>("greet", "says hello");
    /// assert!(tool.input_schema.as_str().contains(r#""required":["name"]"#));
    /// assert!(tool.output_schema.is_none());
    /// ```
    #[cfg(feature = "schemars")]
    #[must_use]
    pub fn of_types<I: schemars::JsonSchema, O: schemars::JsonSchema>(
        name: &str,
        description: &str,
    ) -> Self {
        let object_schema = |schema: schemars::Schema| {
            let says_nothing = schema.get("type").is_some_and(|kind| kind == "null");
            let raw = RawObject::from_serialize(&schema).ok().flatten();
            raw.filter(|_| !says_nothing)
        };
        let input = object_schema(schemars::schema_for!(I));
        let mut tool = Self::local(name, description, input.unwrap_or_default());
        tool.output_schema = object_schema(schemars::schema_for!(O));
        tool
    }

    /// The bytes that it takes, about.
    pub(crate) fn weight(&self) -> usize {
        /// What a declaration takes beside its texts, and each text of a list.
        const FIXED: usize = 256;
        const EACH: usize = 32;
        /// Where an id stands: in the declaration, and by it in the tables of a connection, of its router and of quotas.
        const TABLES: usize = 4;
        let list = |list: &Option<Vec<String>>| -> usize {
            list.iter().flatten().map(|text| text.len() + EACH).sum()
        };
        let texts = TABLES * self.tool_id.len() + self.name.len() + self.description.len();
        let lists = list(&self.capabilities) + list(&self.tags);
        FIXED + texts + self.schema_bytes() + lists + self.extra.bytes()
    }

    /// The bytes of its schemas.
    pub(crate) fn schema_bytes(&self) -> usize {
        let output = self.output_schema.as_ref();
        self.input_schema.as_str().len() + output.map_or(0, |schema| schema.as_str().len())
    }

    /// Whether a check of the other's schemas says what it says of these.
    pub(crate) fn has_same_schemas(&self, other: &Self) -> bool {
        self.input_schema == other.input_schema && self.output_schema == other.output_schema
    }

    /// Reads one declaration of a [`Register`].
    ///
    /// # Errors
    ///
    /// Every finding; the pointers begin at the declaration.
    pub fn read(raw: Raw<'_>, limits: &json::Limits) -> Result<Self, Report> {
        match json::read_raw(raw, limits, Profile::Strict) {
            Ok((tool, _)) => Ok(tool),
            Err(json::DecodeError::Invalid(report)) => Err(report),
            Err(_) => Err(Report::default()),
        }
    }
}

/// Whether a text can be the part of a tool id behind the slash.
///
/// Spec: OpenSentience 4.2
// impl: OSW-4.2-1
#[must_use]
pub fn is_tool_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    !name.is_empty() && name.bytes().all(allowed)
}

ubos_common::wire! {
    /// The agent offers tools.
    ///
    /// Spec: OpenSentience 4.2.1
    pub struct Register {
        /// The tools, each as text: a wrong one does not spoil the others.
        required tools: Vec<RawBuf> = "tools", "OSW-4.2-3";
        /// Whether all earlier ones go.
        nullable replace: bool = "replace", "OSW-4.2-4";
    }
}

ubos_common::wire! {
    /// Which tools the core takes.
    ///
    /// Spec: OpenSentience 4.2.2
    pub struct Registered {
        /// Ids of the tools taken.
        required registered: Vec<String> = "registered", "OSW-4.2-2";
        /// The others, each with its reason.
        nullable rejected: Vec<Rejected> = "rejected", "OSW-4.2-2";
    }
}

ubos_common::wire! {
    /// A tool that the core does not take.
    pub struct Rejected {
        /// Its id, as it was given; cut where it was too long, empty where there was none.
        required tool_id: String = "tool_id", "OSW-4.2-2";
        /// Why.
        required error: ErrorObject = "error", "OSW-4.2-2";
    }
}

ubos_common::wire! {
    /// The agent withdraws tools.
    ///
    /// Spec: OpenSentience 4.2.3
    pub struct Unregister {
        /// Their ids; unknown ones are ignored.
        required tool_ids: Vec<String> = "tool_ids", "OSW-4.2-5";
    }
}

ubos_common::wire! {
    /// Which tools were withdrawn.
    pub struct Unregistered {
        /// Their ids.
        required tool_ids: Vec<String> = "tool_ids", "OSW-4.2-5";
    }
}

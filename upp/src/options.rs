//! The options of a model, and the instance that they make.

use std::sync::Arc;

use ubos_common::json::RawObject;

use crate::error::{ErrorCode, UppError};
use crate::message::{Messages, Stamp};
use crate::model::{LlmMiddleware, LlmRequest, ModelReference, ToolChoice};
use crate::tool::{Tool, ToolSet, ToolUseStrategy};

/// The options of a model: what every request to it has in common.
///
/// | option | default |
/// |---|---|
/// | `params` | none |
/// | `system` | none |
/// | `tools` | none |
/// | `structure` | none: the response is free text |
/// | `middleware` | none |
/// | content in spans | no |
///
/// Spec: UPP-1.3 options
#[derive(Clone)]
pub struct LlmOptions {
    model: ModelReference,
    params: Option<Arc<RawObject>>,
    system: Option<Arc<str>>,
    tools: ToolSet,
    structure: Option<Arc<RawObject>>,
    middleware: Vec<Arc<dyn LlmMiddleware>>,
    /// Whether requests have spans already.
    #[cfg(feature = "tracing")]
    is_traced: bool,
}

impl LlmOptions {
    /// A model, and the default for every other option.
    pub fn new(model: ModelReference) -> Self {
        Self {
            model,
            params: None,
            system: None,
            tools: ToolSet::default(),
            structure: None,
            middleware: Vec::new(),
            #[cfg(feature = "tracing")]
            is_traced: false,
        }
    }

    /// Sets the model.
    #[must_use]
    pub fn with_model(mut self, model: ModelReference) -> Self {
        self.model = model;
        #[cfg(feature = "tracing")]
        {
            self.is_traced = false;
        }
        self
    }

    /// Sets the vendor's parameters. They are sent unaltered.
    #[must_use]
    pub fn with_params(mut self, params: impl Into<Arc<RawObject>>) -> Self {
        self.params = Some(params.into());
        self
    }

    /// Sets the system prompt.
    #[must_use]
    pub fn with_system(mut self, system: impl Into<Arc<str>>) -> Self {
        self.system = Some(system.into());
        self
    }

    /// Sets the tools that the model may call.
    #[must_use]
    pub fn with_tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.tools.tools = tools.into_iter().collect();
        self
    }

    /// Adds a tool that the model may call.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use upp::{FnTool, LlmOptions, ScriptedModel, json_text, object};
    /// let now = FnTool::new("now", "The time", object("{}")?, |_, _| async { Ok(json_text("noon")) });
    /// let options = LlmOptions::new(Arc::new(ScriptedModel::new([]))).with_tool(now);
    /// # let _ = options;
    /// # Ok::<(), upp::ToolError>(())
    /// ```
    #[must_use]
    pub fn with_tool(mut self, tool: impl Tool + 'static) -> Self {
        let tools = self.tools.tools.iter().cloned();
        self.tools.tools = tools.chain([Arc::new(tool) as Arc<dyn Tool>]).collect();
        self
    }

    /// Sets the hooks around tool calls.
    #[must_use]
    pub fn with_tool_strategy(mut self, strategy: Arc<dyn ToolUseStrategy>) -> Self {
        self.tools.strategy = Some(strategy);
        self
    }

    /// Sets the JSON Schema of the response.
    #[must_use]
    pub fn with_structure(mut self, schema: impl Into<Arc<RawObject>>) -> Self {
        self.structure = Some(schema.into());
        self
    }

    /// Puts the content of messages, calls and results into spans, where it is never by default. It may hold secrets, and data
    /// of people.
    #[must_use]
    pub const fn with_content_in_spans(mut self) -> Self {
        self.tools.shows_content = true;
        self
    }

    /// Adds middleware around the model and the middleware that is already set, outermost first.
    #[must_use]
    pub fn with_middleware(
        mut self,
        middleware: impl IntoIterator<Item = Arc<dyn LlmMiddleware>>,
    ) -> Self {
        self.middleware.splice(0..0, middleware);
        self
    }

    /// The model.
    #[must_use]
    pub const fn model(&self) -> &ModelReference {
        &self.model
    }

    /// The vendor's parameters.
    #[must_use]
    pub const fn params(&self) -> Option<&Arc<RawObject>> {
        self.params.as_ref()
    }

    /// The system prompt.
    #[must_use]
    pub const fn system(&self) -> Option<&Arc<str>> {
        self.system.as_ref()
    }

    /// The tools, and the hooks around their calls.
    #[must_use]
    pub const fn tools(&self) -> &ToolSet {
        &self.tools
    }

    /// The JSON Schema of the response.
    #[must_use]
    pub const fn structure(&self) -> Option<&Arc<RawObject>> {
        self.structure.as_ref()
    }
}

impl core::fmt::Debug for LlmOptions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LlmOptions")
            .field("provider", &self.model.provider())
            .field("model", &self.model.model_id())
            .field("tools", &self.tools)
            .finish_non_exhaustive()
    }
}

/// Options that were checked against the capabilities of their model.
#[derive(Clone, Debug)]
pub struct LlmInstance(LlmOptions);

/// Wraps the model in the middleware, and checks the options against its capabilities.
///
/// # Errors
///
/// [`ErrorCode::InvalidRequest`] where the options use tools or structured output and the model does not support them.
///
/// Spec: UPP-1.3 options
pub fn llm(mut options: LlmOptions) -> Result<LlmInstance, UppError> {
    for layer in options.middleware.drain(..).rev() {
        options.model = layer.wrap(options.model);
    }
    #[cfg(feature = "tracing")]
    if !core::mem::replace(&mut options.is_traced, true) {
        options.model = Arc::new(crate::otel::TracedModel {
            model: options.model,
            shows_content: options.tools.shows_content,
        });
    }
    let capabilities = options.model.capabilities();
    let refuse = |what: &str| {
        let model = options.model.as_ref();
        let text = format!("{} does not support {what}", model.model_id());
        Err(UppError::new(
            ErrorCode::InvalidRequest,
            model.provider(),
            text,
        ))
    };
    if options.structure.is_some() && !capabilities.structured_output {
        // impl: UPP-5
        return refuse("structured output");
    }
    if !options.tools.tools.is_empty() && !capabilities.tools {
        return refuse("tools");
    }
    Ok(LlmInstance(options))
}

impl LlmInstance {
    /// The options.
    #[must_use]
    pub const fn options(&self) -> &LlmOptions {
        &self.0
    }

    /// A request with these options.
    #[must_use]
    pub fn request(&self, messages: Messages, stamp: Stamp) -> LlmRequest {
        LlmRequest {
            messages,
            stamp,
            system: self.0.system.clone(),
            params: self.0.params.clone(),
            tool_choice: ToolChoice::Auto,
            tools: Arc::clone(&self.0.tools.tools),
            structure: self.0.structure.clone(),
            trace: None,
            #[cfg(feature = "tracing")]
            span: tracing::Span::none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::scripted::ScriptedModel;

    /// Writes its name down when it is put around a model.
    struct Layer(&'static str, Arc<Mutex<Vec<&'static str>>>);

    impl LlmMiddleware for Layer {
        fn wrap(&self, model: ModelReference) -> ModelReference {
            self.1.lock().unwrap().push(self.0);
            model
        }
    }

    #[test]
    fn middleware_goes_around_what_is_set_already_and_the_first_is_outermost() {
        let wrapped = Arc::default();
        let layer = |name| Arc::new(Layer(name, Arc::clone(&wrapped))) as Arc<dyn LlmMiddleware>;
        let options = LlmOptions::new(Arc::new(ScriptedModel::new([])))
            .with_middleware([layer("second"), layer("third")])
            .with_middleware([layer("first")]);
        llm(options).unwrap();
        assert_eq!(*wrapped.lock().unwrap(), ["third", "second", "first"]);
    }
}

//! Tools whose arguments and results are Rust types.

use core::future::Future;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use ubos_common::json::{RawBuf, RawObject};

use super::{FnTool, ToolContext, ToolError};

impl FnTool {
    /// A tool whose arguments are a Rust type. The model receives the schema of the type, and arguments that do not fit the
    /// type give an error result, so that the model can try again.
    ///
    /// ```
    /// use schemars::JsonSchema;
    /// use serde::Deserialize;
    /// use upp::{FnTool, Tool, ToolError};
    ///
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Sum {
    ///     /// The numbers to add.
    ///     numbers: Vec<i64>,
    /// }
    ///
    /// let sum = FnTool::typed("sum", "Adds numbers", |arguments: Sum, _context| async move {
    ///     Ok::<i64, ToolError>(arguments.numbers.iter().sum())
    /// })?;
    /// assert!(sum.parameters().as_str().contains("The numbers to add."));
    /// # Ok::<(), ToolError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The schema of the type is not an object.
    // impl: UAP-16-3
    pub fn typed<A, T, F, R>(
        name: impl Into<Box<str>>,
        description: impl Into<Box<str>>,
        run: F,
    ) -> Result<Self, ToolError>
    where
        A: DeserializeOwned + JsonSchema,
        T: Serialize,
        F: Fn(A, ToolContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, ToolError>> + Send + 'static,
    {
        let parameters = schema_of::<A>()?;
        Ok(Self::new(
            name,
            description,
            parameters,
            move |arguments: RawObject, context| {
                // impl: UPP-5
                let read = arguments.deserialize::<A>();
                let running = read.map(|arguments| run(arguments, context));
                async move {
                    let running = running.map_err(|error| {
                        ToolError::from(format!("arguments that do not fit: {error}"))
                    })?;
                    let result = running.await?;
                    RawBuf::from_serialize(&result)
                        .map_err(|error| format!("a result that is no JSON: {error}").into())
                }
            },
        ))
    }
}

/// The schema of a type in one piece: not every vendor follows references.
fn schema_of<A: JsonSchema>() -> Result<RawObject, ToolError> {
    let mut settings = SchemaSettings::draft2020_12();
    settings.meta_schema = None;
    settings.inline_subschemas = true;
    let schema = settings.into_generator().into_root_schema_for::<A>();
    let is_object = schema.get("type").and_then(|kind| kind.as_str()) == Some("object");
    let written = RawObject::from_serialize(&schema).ok().flatten();
    written
        .filter(|_| is_object)
        .ok_or_else(|| "a schema that is none of an object".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cancel::CancelToken;
    use crate::tool::{Tool, object};
    use futures::executor::block_on;
    use serde::Deserialize;

    #[derive(Deserialize, JsonSchema)]
    struct Inner {
        n: i64,
    }

    #[derive(Deserialize, JsonSchema)]
    struct Outer {
        inner: Inner,
        twice: Option<bool>,
    }

    fn run(text: &str) -> Result<String, ToolError> {
        let tool = FnTool::typed("t", "d", |outer: Outer, _| async move {
            let times = if outer.twice == Some(true) { 2 } else { 1 };
            Ok(vec![outer.inner.n * times])
        })?;
        let schema = tool.parameters().as_str();
        assert!(schema.contains(r#""required":["inner"]"#) && !schema.contains("$ref"));
        let context = ToolContext::new("c", CancelToken::default());
        block_on(tool.run(&object(text)?, &context)).map(|result| result.as_str().to_owned())
    }

    // spec: UPP-5
    #[test]
    fn arguments_are_the_type_or_an_error_that_says_why() {
        assert_eq!(run(r#"{"inner":{"n":3},"twice":true}"#).unwrap(), "[6]");
        assert_eq!(run(r#"{"inner":{"n":3}}"#).unwrap(), "[3]");
        let error = run(r#"{"inner":{}}"#).unwrap_err().0;
        assert!(error.contains("missing field `n`"), "{error}");
        let number = FnTool::typed("t", "d", |n: i64, _| async move { Ok(n) });
        assert!(number.is_err());
    }
}

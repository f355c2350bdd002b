//! Handlers over types of the application, and the schemas of those types.

use core::future::Future;
use core::marker::PhantomData;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use schemars::{JsonSchema, schema_for};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ubos_common::json::RawBuf;

use super::handler::{Context, Handler};
use super::state::{Processor, Shape};
use crate::ident::Capability;
use crate::role::consumer::{HandlerError, Outcome};

impl Processor {
    /// Adds a handler over types: the payload is read into the first, and the second becomes the output. A payload
    /// that is none is `UNPROCESSABLE`.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use sap::processor::{AllowAll, Config, Context, HandlerError, Processor};
    /// # use sap::{Producer, ProducerKind, store::MemoryTranscript};
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Ask {
    ///     text: String,
    /// }
    ///
    /// #[derive(serde::Serialize, schemars::JsonSchema)]
    /// struct Said {
    ///     number: i64,
    /// }
    ///
    /// async fn number(ask: Ask, _cx: Context) -> Result<Said, HandlerError> {
    ///     Ok(Said { number: ask.text.parse()? })
    /// }
    ///
    /// # let producer = Producer::new("A-1".parse()?, ProducerKind::Agent);
    /// # let transcript = Arc::new(MemoryTranscript::default());
    /// let processor = Processor::new(producer, Arc::new(AllowAll), transcript, Config::default())?
    ///     .handle_typed("text.number".parse()?, number);
    /// let shape = processor.shape(&"text.number".parse()?).unwrap();
    /// assert!(shape.payload.as_ref().unwrap().as_str().contains(r#""required":["text"]"#));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn handle_typed<Ask, Said, F, Work>(self, capability: Capability, handler: F) -> Self
    where
        Ask: DeserializeOwned + JsonSchema + Send + 'static,
        Said: Serialize + JsonSchema + 'static,
        F: Fn(Ask, Context) -> Work + Send + Sync + 'static,
        Work: Future<Output = Result<Said, HandlerError>> + Send + 'static,
    {
        let shape = Shape {
            about: None,
            payload: RawBuf::from_serialize(&schema_for!(Ask)).ok(),
            output: RawBuf::from_serialize(&schema_for!(Said)).ok(),
        };
        let typed = Typed {
            handler,
            types: PhantomData::<fn(Ask) -> Said>,
        };
        self.handle(capability.clone(), typed)
            .shaped(&capability, shape)
    }
}

struct Typed<F, T> {
    handler: F,
    types: PhantomData<T>,
}

impl<Ask, Said, F, Work> Handler for Typed<F, fn(Ask) -> Said>
where
    Ask: DeserializeOwned,
    Said: Serialize,
    F: Fn(Ask, Context) -> Work + Send + Sync,
    Work: Future<Output = Result<Said, HandlerError>> + Send + 'static,
{
    fn run(&self, context: Context) -> BoxFuture<'_, Result<Outcome, HandlerError>> {
        let Ok(ask) = context.task.payload.deserialize::<Ask>() else {
            let why = "the payload is not what the capability takes";
            return Box::pin(core::future::ready(Err(HandlerError::unprocessable(why))));
        };
        let work = (self.handler)(ask, context);
        let outcome = work.map(|said| {
            let output = RawBuf::from_serialize(&said?);
            let output = output.map_err(|_| HandlerError::failed(NO_JSON.0, NO_JSON.1))?;
            Ok(Outcome::new(output))
        });
        outcome.boxed()
    }
}

const NO_JSON: (crate::ErrorCode, &str) = (crate::ErrorCode::Internal, "the output is no JSON");

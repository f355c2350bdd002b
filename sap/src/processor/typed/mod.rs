//! Handlers over types of the application, and the schemas of those types.

mod misfit;

use core::future::Future;
use core::marker::PhantomData;
use std::io;
use std::sync::Arc;

use futures::future::BoxFuture;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ubos_common::json::RawBuf;

use super::handler::{Context, Handler};
use super::state::{Processor, Shape};
use crate::ident::Capability;
use crate::role::consumer::{HandlerError, Outcome};
use crate::work::{self, For, HEAVY};

impl Processor {
    /// Adds a handler over types: the payload is read into the first, and the second becomes the output. The schemas are those
    /// of reading the one and of writing the other. A payload that is none is `UNPROCESSABLE`: the message says at which place what
    /// was wanted, and never the value. An output of more than 64 KiB is written anew on another thread, so that it must be
    /// written the same way twice.
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
        Said: Serialize + JsonSchema + Send + 'static,
        F: Fn(Ask, Context) -> Work + Send + Sync + 'static,
        Work: Future<Output = Result<Said, HandlerError>> + Send + 'static,
    {
        let shape = Shape {
            about: None,
            payload: schema::<Ask>(SchemaSettings::draft2020_12()),
            output: schema::<Said>(SchemaSettings::draft2020_12().for_serialize()),
        };
        let typed = Typed {
            handler,
            types: PhantomData::<fn(Ask) -> Said>,
        };
        self.handle(capability.clone(), typed)
            .shaped(&capability, shape)
    }
}

fn schema<T: JsonSchema>(settings: SchemaSettings) -> Option<RawBuf> {
    let schema: Schema = settings.into_generator().into_root_schema_for::<T>();
    RawBuf::from_serialize(&schema).ok()
}

struct Typed<F, T> {
    handler: F,
    types: PhantomData<T>,
}

impl<Ask, Said, F, Work> Handler for Typed<F, fn(Ask) -> Said>
where
    Ask: DeserializeOwned + Send + 'static,
    Said: Serialize + Send + 'static,
    F: Fn(Ask, Context) -> Work + Send + Sync,
    Work: Future<Output = Result<Said, HandlerError>> + Send + 'static,
{
    fn run(&self, context: Context) -> BoxFuture<'_, Result<Outcome, HandlerError>> {
        Box::pin(async move {
            let task = Arc::clone(&context.task);
            let read = move || {
                let payload = &task.payload;
                let ask = payload.deserialize::<Ask>();
                ask.map_err(|error| misfit::why(payload.as_str(), &error))
            };
            let ask = work::done(For::Task, context.task.payload.as_str().len(), read).await;
            let ask = ask.map_err(HandlerError::unprocessable)?;
            let said = (self.handler)(ask, context).await?;
            let output = match written(&said) {
                Written::Whole(text) => RawBuf::parse(&text).ok(),
                Written::Refused => None,
                Written::Long => {
                    let write = move || RawBuf::from_serialize(&said).ok();
                    work::apart(For::Task, write).await
                }
            };
            let no_json = || HandlerError::failed(NO_JSON.0, NO_JSON.1);
            output.map(Outcome::new).ok_or_else(no_json)
        })
    }
}

/// What a value is as JSON, where that is short.
enum Written {
    Whole(String),
    Long,
    Refused,
}

fn written(value: &impl Serialize) -> Written {
    let mut short = Short::default();
    let written = serde_json::to_writer(&mut short, value);
    match (written, String::from_utf8(short.0)) {
        (Ok(()), Ok(text)) => Written::Whole(text),
        (Err(error), _) if error.is_io() => Written::Long,
        _ => Written::Refused,
    }
}

/// Takes no more than what is short.
#[derive(Default)]
struct Short(Vec<u8>);

impl io::Write for Short {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > HEAVY - self.0.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const NO_JSON: (crate::ErrorCode, &str) = (crate::ErrorCode::Internal, "the output is no JSON");

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_is_short_is_written_at_once_and_what_is_long_is_not() {
        let text = |bytes: usize| "x".repeat(bytes - 2);
        assert!(matches!(written(&text(HEAVY)), Written::Whole(all) if all.len() == HEAVY));
        assert!(matches!(written(&text(HEAVY + 1)), Written::Long));
        let no_json = BTreeMap::from([(vec![1], 1)]);
        assert!(matches!(written(&no_json), Written::Refused));
    }
}

//! Which model talks: ours, or a vendor's whose key the environment holds.

use std::sync::Arc;
use std::time::Duration;

use ubos_common::secret::Secret;
use upp::transport::AnthropicModel;
use upp::transport::GoogleModel;
use upp::transport::ProviderConfig;
use upp::transport::{OpenAiModel, PRESETS, preset};
use upp::{ExponentialBackoff, ModelReference, UppError, object};

use super::args::Which;
use super::scripted;

/// How long a vendor may be silent within an answer.
const SILENCE: Duration = Duration::from_secs(120);

/// The model of the command line.
///
/// # Errors
///
/// No such vendor, no key, or nothing that can be reached.
pub(super) fn model(
    which: &Which,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<ModelReference, String> {
    let Which::Real { vendor, name } = which else {
        return Ok(Arc::new(scripted::model()));
    };
    let variable = |name: &str| environment(name).filter(|value| !value.is_empty());
    let mut config = ProviderConfig::default();
    let key = match vendor.as_str() {
        "anthropic" => {
            // The vendor needs a limit with every request.
            let params = object(r#"{"max_tokens":8192}"#).map_err(|err| err.to_string())?;
            config = config.with_params(params);
            Some("ANTHROPIC_API_KEY")
        }
        "google" => Some("GOOGLE_API_KEY"),
        other => {
            let preset = preset(other).ok_or_else(|| unknown(other))?;
            config = preset.config();
            preset.key_variable
        }
    };
    let url = format!("{}_BASE_URL", vendor.to_uppercase());
    let base_url = variable(&url);
    match (key, key.and_then(variable)) {
        (_, Some(key)) => config = config.with_key(Secret::new(key)),
        // A server of one's own may want no key.
        (Some(key), None) if base_url.is_none() => {
            return Err(format!("{vendor} needs a key: set {key}"));
        }
        _ => {}
    }
    if let Some(url) = base_url {
        config = config.with_base_url(url);
    }
    let config = config
        .with_idle_timeout(SILENCE)
        .with_retry(Arc::new(ExponentialBackoff::default()));
    let name = name.as_str();
    let made: Result<ModelReference, UppError> = match vendor.as_str() {
        "anthropic" => AnthropicModel::new(name, config).map(|model| Arc::new(model) as _),
        "google" => GoogleModel::new(name, config).map(|model| Arc::new(model) as _),
        _ => OpenAiModel::new(name, config).map(|model| Arc::new(model) as _),
    };
    made.map_err(|err| format!("{vendor}: {}", err.message))
}

fn unknown(vendor: &str) -> String {
    let known: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    format!(
        "no vendor {vendor}: there are anthropic, google, {}",
        known.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use ubos_common::id::IdSource;
    use ubos_common::time::Timestamp;
    use upp::{List, LlmRequest, Message, Stamp};

    use super::*;

    fn real(vendor: &str) -> Which {
        Which::Real {
            vendor: vendor.to_owned(),
            name: "m".to_owned(),
        }
    }

    #[test]
    fn a_vendor_is_reached_with_the_key_of_its_variable() {
        let keyed = |name: &str| name.ends_with("_API_KEY").then(|| "k".to_owned());
        for vendor in ["openai", "anthropic", "google", "groq"] {
            let model = model(&real(vendor), keyed).unwrap();
            assert_eq!((model.provider(), model.model_id()), (vendor, "m"));
            let why = super::model(&real(vendor), |_| None).err().unwrap();
            assert!(why.contains("_API_KEY"), "{why}");
        }
        assert!(model(&real("ollama"), |_| None).is_ok());
        let local =
            |name: &str| (name == "OPENAI_BASE_URL").then(|| "http://127.0.0.1:1/v1".to_owned());
        assert!(model(&real("openai"), local).is_ok());
        assert!(
            model(&real("nobody"), keyed)
                .err()
                .unwrap()
                .contains("groq")
        );
        assert!(model(&Which::Scripted, |_| None).is_ok());
    }

    /// The body of the request that a model sends to a server, which refuses it.
    async fn sent(vendor: &str) -> String {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let model = model(&real(vendor), |name| match name.ends_with("_BASE_URL") {
            true => Some(url.clone()),
            false => Some("k".to_owned()),
        });
        let serving = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            let body = loop {
                let text = String::from_utf8_lossy(&seen).into_owned();
                if let Some((head, body)) = text.split_once("\r\n\r\n") {
                    let head = head.to_lowercase();
                    let (_, length) = head.split_once("content-length: ").unwrap();
                    let length = length.lines().next().unwrap();
                    if body.len() == length.parse::<usize>().unwrap() {
                        break body.to_owned();
                    }
                }
                assert!(stream.read_buf(&mut seen).await.unwrap() > 0, "{text}");
            };
            let refusal = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}";
            stream.write_all(refusal).await.unwrap();
            body
        };
        let mut ids = IdSource::seeded(1);
        let mut stamp = || Stamp::new(&mut ids, Timestamp::EPOCH);
        let hello = List::from(vec![Message::user(stamp(), "hello")]);
        let asked = LlmRequest::new(hello, stamp());
        let asked = model.unwrap().complete(asked);
        tokio::select! {
            biased;
            body = serving => body,
            end = asked => panic!("nothing was sent: {end:?}"),
        }
    }

    #[tokio::test]
    async fn anthropic_is_told_how_long_an_answer_may_be() {
        let body = sent("anthropic").await;
        assert!(body.contains(r#""max_tokens":8192"#), "{body}");
    }
}

//! Vendors that speak like OpenAI, by name.

use crate::model::LlmCapabilities;
use crate::transport::ProviderConfig;

/// A vendor that speaks like OpenAI: where it is, and where its users keep their key.
///
/// Nothing here reads the environment; the caller does, and gives the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preset {
    /// The vendor's name.
    pub name: &'static str,
    /// Where its paths begin.
    pub base_url: &'static str,
    /// The environment variable that by custom holds the key; none where no key is needed.
    pub key_variable: Option<&'static str>,
    /// What its models can do at best.
    pub capabilities: LlmCapabilities,
}

impl Preset {
    /// A configuration for the vendor, without a key.
    #[must_use]
    pub fn config(&self) -> ProviderConfig {
        ProviderConfig::default()
            .with_provider(self.name)
            .with_base_url(self.base_url)
            .with_capabilities(self.capabilities)
    }
}

/// The preset of a name.
///
/// ```
/// use upp::LlmModel;
/// use upp::transport::{OpenAiModel, preset};
///
/// let groq = preset("groq").expect("it is in the table");
/// let model = OpenAiModel::new("llama-3.3-70b-versatile", groq.config().with_key("secret".to_owned()))?;
/// assert_eq!((model.provider(), groq.key_variable), ("groq", Some("GROQ_API_KEY")));
/// # Ok::<(), upp::UppError>(())
/// ```
#[must_use]
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

const TEXT: LlmCapabilities = LlmCapabilities::text();
const IMAGES: LlmCapabilities = LlmCapabilities {
    image_input: true,
    ..TEXT
};

const fn of(
    name: &'static str,
    base_url: &'static str,
    key_variable: Option<&'static str>,
    capabilities: LlmCapabilities,
) -> Preset {
    Preset {
        name,
        base_url,
        key_variable,
        capabilities,
    }
}

/// All presets.
pub const PRESETS: &[Preset] = &[
    of(
        "openai",
        "https://api.openai.com/v1",
        Some("OPENAI_API_KEY"),
        LlmCapabilities {
            document_input: true,
            audio_input: true,
            ..IMAGES
        },
    ),
    of(
        "openrouter",
        "https://openrouter.ai/api/v1",
        Some("OPENROUTER_API_KEY"),
        LlmCapabilities {
            document_input: true,
            audio_input: true,
            ..IMAGES
        },
    ),
    of("xai", "https://api.x.ai/v1", Some("XAI_API_KEY"), IMAGES),
    of(
        "groq",
        "https://api.groq.com/openai/v1",
        Some("GROQ_API_KEY"),
        IMAGES,
    ),
    of(
        "cerebras",
        "https://api.cerebras.ai/v1",
        Some("CEREBRAS_API_KEY"),
        TEXT,
    ),
    of(
        "moonshot",
        "https://api.moonshot.ai/v1",
        Some("MOONSHOT_API_KEY"),
        IMAGES,
    ),
    of("ollama", "http://localhost:11434/v1", None, IMAGES),
    of("vllm", "http://localhost:8000/v1", None, IMAGES),
];

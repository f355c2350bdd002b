//! UPP-1.3 provider types and tool loop for language models, with adapters behind features.

//! The parameters of a request and the members of a response that spans have, in the words of each vendor.

use std::collections::BTreeMap;

use tracing::Span;
use ubos_common::json::{Raw, RawBuf, RawObject};

use super::names as n;

type Members = BTreeMap<String, RawBuf>;

/// Whole numbers, by the names that vendors give them.
const COUNTS: [(&str, &[&str]); 4] = [
    (
        n::REQUEST_MAX_TOKENS,
        &[
            "max_tokens",
            "max_completion_tokens",
            "max_output_tokens",
            "maxOutputTokens",
        ],
    ),
    (n::REQUEST_CHOICES, &["n", "candidateCount"]),
    (n::REQUEST_SEED, &["seed"]),
    (n::REQUEST_TOP_K, &["top_k", "topK"]),
];

const NUMBERS: [(&str, &[&str]); 4] = [
    (n::REQUEST_TEMPERATURE, &["temperature"]),
    (n::REQUEST_TOP_P, &["top_p", "topP"]),
    (
        n::REQUEST_FREQUENCY,
        &["frequency_penalty", "frequencyPenalty"],
    ),
    (
        n::REQUEST_PRESENCE,
        &["presence_penalty", "presencePenalty"],
    ),
];

const STOPS: [&str; 3] = ["stop", "stop_sequences", "stopSequences"];

/// Records the parameters of a request.
pub(super) fn record(span: &Span, params: &RawObject) {
    let Ok(mut params) = params.deserialize::<Members>() else {
        return;
    };
    // Google has them one level down.
    let inner = params.remove("generationConfig");
    let inner = inner.and_then(|inner| inner.deserialize::<Members>().ok());
    params.extend(inner.unwrap_or_default());
    let find = |names: &[&str]| names.iter().find_map(|name| params.get(*name));
    for (field, names) in COUNTS {
        let count = find(names).and_then(|value| value.deserialize::<i64>().ok());
        if let Some(count) = count.filter(|count| field != n::REQUEST_CHOICES || *count != 1) {
            span.record(field, count);
        }
    }
    for (field, names) in NUMBERS {
        if let Some(number) = find(names).and_then(|value| value.deserialize::<f64>().ok()) {
            span.record(field, number);
        }
    }
    let stops = find(&STOPS).map(|stops| {
        let one = stops.deserialize::<String>().map(|one| vec![one]);
        one.or_else(|_| stops.deserialize::<Vec<String>>())
    });
    if let Some(Ok(stops)) = stops {
        span.record(n::REQUEST_STOPS, stops.join(","));
    }
}

/// Records what the adapter kept of a response.
pub(super) fn record_response(span: &Span, kept: Raw<'_>) {
    let Ok(kept) = kept.deserialize::<Members>() else {
        return;
    };
    for (field, names) in [
        (n::RESPONSE_ID, ["id", "responseId"]),
        (n::RESPONSE_MODEL, ["model", "modelVersion"]),
    ] {
        let value = names.iter().find_map(|name| kept.get(*name));
        if let Some(value) = value.and_then(|value| value.deserialize::<String>().ok()) {
            span.record(field, value);
        }
    }
}

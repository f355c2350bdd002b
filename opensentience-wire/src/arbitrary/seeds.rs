//! The published vectors as seeds of fuzzing and property tests.

macro_rules! vectors {
    ($($file:literal)*) => {
        &[$(include_bytes!(concat!("../../vectors/", $file)).as_slice()),*]
    };
}

/// The files that `vectors/index.json` lists.
#[rustfmt::skip]
pub(super) const VECTORS: &[&[u8]] = vectors! {
    "valid/spec-8-agent-hello.json" "valid/spec-8-core-tool-call.json" "valid/spec-8-agent-tool-result.json"
    "invalid/no-json.json" "invalid/list.json" "invalid/text.json" "invalid/cut-off.json"
    "invalid/two-objects.json" "invalid/byte-order-mark.json" "invalid/no-utf8.json"
    "invalid/double-member.json" "invalid/deep.json" "valid/ping.json" "valid/time-offset.json"
    "invalid/no-v.json" "invalid/v-null.json" "invalid/no-type.json" "invalid/type-null.json"
    "invalid/no-id.json" "invalid/id-null.json" "invalid/no-ts.json" "invalid/ts-null.json"
    "invalid/no-payload.json" "invalid/payload-null.json" "invalid/v-text.json" "invalid/v-fraction.json"
    "invalid/v-2.json" "invalid/type-empty.json" "invalid/id-number.json" "invalid/id-empty.json"
    "invalid/ts-date.json" "invalid/ts-no-day.json" "invalid/payload-list.json" "valid/ids-null.json"
    "invalid/in-reply-to-number.json" "invalid/request-id-number.json" "invalid/correlation-id-number.json"
    "invalid/causation-id-number.json" "invalid/call-without-request-id.json" "valid/actor.json"
    "invalid/actor-robot.json" "valid/error-anywhere.json" "invalid/error-retryable-text.json"
    "valid/unknown-type.json" "valid/unknown-members.json" "invalid/error-without-code.json"
    "invalid/error-message-number.json" "valid/refusal.json" "valid/hello-full.json"
    "invalid/hello-no-agent-id.json" "invalid/hello-no-agent-version.json" "invalid/hello-no-protocol.json"
    "invalid/hello-no-session-token.json" "invalid/hello-version-word.json"
    "invalid/hello-versions-texts.json" "valid/welcome.json" "invalid/welcome-no-accepted-version.json"
    "invalid/welcome-no-session-id.json" "invalid/welcome-no-heartbeat-interval-ms.json"
    "invalid/welcome-no-max-frame-bytes.json" "invalid/welcome-no-server.json" "invalid/welcome-negative.json"
    "valid/goodbye.json" "invalid/goodbye-no-reason.json" "valid/register.json" "valid/register-none.json"
    "invalid/tool-id-no-slash.json" "invalid/tool-id-other-name.json" "invalid/tool-id-two-slashes.json"
    "invalid/tool-name-space.json" "invalid/tool-no-name.json" "invalid/tool-no-description.json"
    "invalid/tool-no-input-schema.json" "invalid/tool-schema-text.json" "invalid/register-no-tools.json"
    "invalid/replace-text.json" "valid/registered.json" "invalid/registered-none.json" "valid/unregister.json"
    "invalid/unregister-text.json" "invalid/tags-numbers.json" "valid/call-full.json"
    "invalid/call-no-call-id.json" "invalid/call-no-tool-id.json" "invalid/call-no-input.json"
    "invalid/call-input-list.json" "invalid/call-timeout-negative.json" "invalid/call-caller-robot.json"
    "valid/chunk.json" "valid/chunk-partial.json" "invalid/chunk-zero.json" "invalid/chunk-channel.json"
    "invalid/chunk-text-partial.json" "invalid/chunk-json-stdout.json" "invalid/chunk-json-list.json"
    "invalid/chunk-done-text.json" "valid/result.json" "valid/result-canceled.json"
    "invalid/result-no-status.json" "invalid/result-status-cancelled.json" "invalid/result-output-text.json"
    "invalid/result-finished-noon.json" "invalid/result-no-call.json" "valid/cancel.json"
    "invalid/cancel-no-call.json" "invalid/cancel-deadline-text.json" "valid/cancel-ack.json"
    "invalid/cancel-ack-maybe.json" "valid/heartbeat.json" "invalid/heartbeat-no-session-id.json"
    "invalid/heartbeat-no-uptime-ms.json" "invalid/heartbeat-no-inflight-calls.json"
    "invalid/heartbeat-no-status.json" "invalid/heartbeat-fine.json" "invalid/heartbeat-minus.json"
    "valid/session.bin" "valid/empty-stream.bin" "invalid/zero-length.bin" "invalid/too-long.bin"
    "invalid/longest-prefix.bin" "invalid/cut-in-prefix.bin" "invalid/cut-in-body.bin"
    "invalid/length-of-characters.bin" "invalid/little-endian.bin" "invalid/no-object.bin"
    "invalid/id-twice.bin" "valid/gap.bin" "invalid/begins-with-2.bin" "invalid/seq-twice.bin"
    "invalid/behind-done.bin" "invalid/second-result.bin" "invalid/behind-result.bin"
    "valid/actor-agent.json" "valid/actor-system.json" "valid/call-caller-human.json"
    "valid/call-caller-system.json" "valid/chunk-stderr.json" "valid/chunk-log.json" "valid/chunk-status.json"
    "valid/result-failed.json" "valid/heartbeat-degraded.json" "valid/heartbeat-unhealthy.json"
};

#[cfg(test)]
mod tests {
    use super::VECTORS;

    #[test]
    fn each_vector_of_the_index_is_a_seed() {
        let index = include_str!("../../vectors/index.json");
        assert_eq!(VECTORS.len(), index.matches(r#""file""#).count());
    }
}

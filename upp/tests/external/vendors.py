"""A server that speaks like the vendors: it reads requests and writes responses with the types of their own packages.

    python vendors.py        prints its port, and serves until its standard input ends

Needs the packages openai, anthropic and google-genai. A request that their types do not allow is answered with status 422 and
the reason. A model that is named like a transcript in ../../vectors responds with it, as the types write it, and refuses a next
request that does not say what it said as it said it. Other models respond with reasoning, text and a call.
"""

import collections.abc
import json
import pathlib
import re
import sys
import threading
import types
import typing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pydantic
import typing_extensions
from anthropic import types as claude
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
from google.genai import types as gemini
from openai.types import chat, responses
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming, CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)

UNIONS = (typing.Union, types.UnionType)
WRAPPERS = tuple(
    getattr(module, name)
    for module in (typing, typing_extensions)
    for name in ("Required", "NotRequired", "Annotated", "ReadOnly")
    if hasattr(module, name)
)


def fault(kind, value, at=""):
    """Why a value is not of a type of a package; None where it is. Members that the type does not have are faults, too."""
    origin, inner = typing_extensions.get_origin(kind), typing_extensions.get_args(kind)
    if origin in WRAPPERS:
        return fault(inner[0], value, at)
    if kind in (object, typing.Any):
        return None
    if kind is None or kind is type(None):
        return None if value is None else f"{at}: null is wanted"
    if origin in UNIONS:
        faults = [fault(one, value, at) for one in inner]
        return None if None in faults else max(filter(None, faults), key=lambda said: said.count("/"))
    if origin in (typing.Literal, typing_extensions.Literal):
        return None if value in inner else f"{at}: {value!r} is not one of {inner}"
    if origin in (list, collections.abc.Iterable, collections.abc.Sequence):
        if not isinstance(value, list):
            return f"{at}: a list is wanted"
        return next(filter(None, (fault(inner[0], one, f"{at}/{n}") for n, one in enumerate(value))), None)
    if origin in (dict, collections.abc.Mapping):
        return None if isinstance(value, dict) else f"{at}: an object is wanted"
    if typing_extensions.is_typeddict(kind):
        return fault_in_object(kind, value, at)
    if isinstance(kind, type) and issubclass(kind, (bool, int, float, str)):
        fits = isinstance(value, (int, float) if kind is float else kind) and (kind is bool or not isinstance(value, bool))
        return None if fits else f"{at}: {kind.__name__} is wanted"
    return f"{at}: no value of {kind} is wanted"


def fault_in_object(kind, value, at):
    if not isinstance(value, dict):
        return f"{at}: an object is wanted"
    members = typing_extensions.get_type_hints(kind, include_extras=True)
    if unknown := set(value) - set(members):
        return f"{at}: unknown members {sorted(unknown)}"
    if missing := kind.__required_keys__ - set(value):
        return f"{at}: missing members {sorted(missing)}"
    return next(filter(None, (fault(members[name], one, f"{at}/{name}") for name, one in value.items())), None)


ARGUMENTS = '{"a":2}'


def completion(body):
    usage = {
        "prompt_tokens": 11,
        "completion_tokens": 7,
        "total_tokens": 18,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    head = {"id": "chatcmpl-1", "created": 1, "model": "m-1"}
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": ARGUMENTS}}
    if not body.get("stream"):
        message = {"role": "assistant", "content": "Grüß dich", "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls", "logprobs": None}
        return [chat.ChatCompletion(object="chat.completion", choices=[choice], usage=usage, **head)]
    begun = {**call, "index": 0, "function": {"name": "add", "arguments": ""}}
    deltas = [{"role": "assistant", "content": ""}, {"content": "Grüß "}, {"content": "dich"}, {"tool_calls": [begun]}]
    deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in ('{"a":', "2}")]
    choices = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    choices.append([{"index": 0, "delta": {}, "finish_reason": "tool_calls"}])
    chunks = [chat.ChatCompletionChunk(object="chat.completion.chunk", choices=one, **head) for one in choices]
    chunks.append(chat.ChatCompletionChunk(object="chat.completion.chunk", choices=[], usage=usage, **head))
    return chunks


def response(body):
    reasoning = {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "Let me see."}],
        "encrypted_content": "c2Vj",
    }
    text = {"type": "output_text", "text": "Grüß dich", "annotations": [], "logprobs": []}
    said = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    call = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "add", "arguments": ARGUMENTS}
    usage = {
        "input_tokens": 11,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 18,
    }
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m-1", "tools": [], "tool_choice": "auto"}
    head["parallel_tool_calls"] = True
    items = [reasoning, said, call]
    whole = responses.Response(status="completed", output=items, usage=usage, **head)
    if not body.get("stream"):
        return [whole]
    events, number = [], iter(range(99))

    def event(kind, name, **members):
        events.append(kind(type=f"response.{name}", sequence_number=next(number), **members))

    begun = responses.Response(status="in_progress", output=[], **head)
    event(responses.ResponseCreatedEvent, "created", response=begun)
    event(responses.ResponseInProgressEvent, "in_progress", response=begun)
    added, done = responses.ResponseOutputItemAddedEvent, responses.ResponseOutputItemDoneEvent
    event(added, "output_item.added", output_index=0, item={**reasoning, "summary": []})
    for part in ("Let me ", "see."):
        kind = responses.ResponseReasoningSummaryTextDeltaEvent
        event(kind, "reasoning_summary_text.delta", item_id="rs_1", output_index=0, summary_index=0, delta=part)
    event(done, "output_item.done", output_index=0, item=reasoning)
    event(added, "output_item.added", output_index=1, item={**said, "status": "in_progress", "content": []})
    for part in ("Grüß ", "dich"):
        place = {"item_id": "msg_1", "output_index": 1, "content_index": 0}
        event(responses.ResponseTextDeltaEvent, "output_text.delta", delta=part, logprobs=[], **place)
    event(responses.ResponseTextDoneEvent, "output_text.done", text="Grüß dich", logprobs=[], **place)
    event(done, "output_item.done", output_index=1, item=said)
    event(added, "output_item.added", output_index=2, item={**call, "arguments": ""})
    for part in ('{"a":', "2}"):
        kind = responses.ResponseFunctionCallArgumentsDeltaEvent
        event(kind, "function_call_arguments.delta", item_id="fc_1", output_index=2, delta=part)
    event(done, "output_item.done", output_index=2, item=call)
    event(responses.ResponseCompletedEvent, "completed", response=whole)
    return events


def message(body):
    usage = {"input_tokens": 7, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 0, "output_tokens": 7}
    usage["output_tokens_details"] = {"thinking_tokens": 3}
    blocks = [
        {"type": "thinking", "thinking": "Let me see.", "signature": "c2Vj"},
        {"type": "text", "text": "Grüß dich", "citations": None},
        {"type": "tool_use", "id": "call_1", "name": "add", "input": json.loads(ARGUMENTS)},
    ]
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1"}
    if not body.get("stream"):
        return [claude.Message(content=blocks, stop_reason="tool_use", stop_sequence=None, usage=usage, **head)]
    begun = claude.Message(content=[], usage={**usage, "output_tokens": 1}, **head)
    deltas = [
        [("thinking_delta", "thinking", "Let me "), ("thinking_delta", "thinking", "see."), ("signature_delta", "signature", "c2Vj")],
        [("text_delta", "text", "Grüß "), ("text_delta", "text", "dich")],
        [("input_json_delta", "partial_json", '{"a":'), ("input_json_delta", "partial_json", "2}")],
    ]
    empty = [{"thinking": "", "signature": ""}, {"text": ""}, {"input": {}}]
    events = [claude.RawMessageStartEvent(type="message_start", message=begun)]
    for n, block in enumerate(blocks):
        start = {**block, **empty[n]}
        events.append(claude.RawContentBlockStartEvent(type="content_block_start", index=n, content_block=start))
        for kind, name, part in deltas[n]:
            delta = {"type": kind, name: part}
            events.append(claude.RawContentBlockDeltaEvent(type="content_block_delta", index=n, delta=delta))
        events.append(claude.RawContentBlockStopEvent(type="content_block_stop", index=n))
    delta = {"stop_reason": "tool_use", "stop_sequence": None}
    events.append(claude.RawMessageDeltaEvent(type="message_delta", delta=delta, usage=usage))
    return [*events, claude.RawMessageStopEvent(type="message_stop")]


def content(body, streams):
    usage = {"prompt_token_count": 11, "candidates_token_count": 4, "thoughts_token_count": 3, "cached_content_token_count": 4}
    thought = [{"text": "Let me ", "thought": True}, {"text": "see.", "thought": True}]
    call = {"function_call": {"name": "add", "args": json.loads(ARGUMENTS)}, "thought_signature": b"sec"}
    parts = [*thought, {"text": "Grüß "}, {"text": "dich"}, call]

    def answer(parts, **more):
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0, **more}
        return gemini.GenerateContentResponse(candidates=[candidate], usage_metadata=usage, model_version="m-1", response_id="r")

    if not streams:
        return [answer(parts, finish_reason="STOP")]
    return [*(answer([part]) for part in parts), answer([], finish_reason="STOP")]


def fault_for_gemini(body):
    """The package has no type of a body: its parts are read by their own types, which refuse unknown members."""
    kinds = {
        "contents": list[gemini.Content],
        "systemInstruction": gemini.Content,
        "tools": list[gemini.Tool],
        "toolConfig": gemini.ToolConfig,
        "generationConfig": gemini.GenerationConfig,
    }
    if unknown := set(body) - set(kinds):
        return f"unknown members {sorted(unknown)}"
    for name, value in body.items():
        try:
            pydantic.TypeAdapter(kinds[name]).validate_json(json.dumps(value))
        except pydantic.ValidationError as error:
            return f"{name}: {error}"
    return None


FILE = pathlib.Path(__file__).parents[2] / "vectors/transcripts.jsonl"
TRANSCRIPTS = {one["name"]: one for one in map(json.loads, FILE.read_text().splitlines())}
# The types of a whole response and of an event.
TYPES = {
    "openai": (chat.ChatCompletion, chat.ChatCompletionChunk),
    "openai-responses": (responses.Response, responses.ResponseStreamEvent),
    "anthropic": (claude.Message, claude.RawMessageStreamEvent),
    "google": (gemini.GenerateContentResponse, gemini.GenerateContentResponse),
}


def written(kind, text):
    """A response or event as its type writes it. Fails where the type does not hold all of it."""
    if text == "[DONE]":
        return text
    adapter = pydantic.TypeAdapter(kind)
    out = adapter.dump_json(adapter.validate_json(text), by_alias=True, exclude_unset=True).decode()
    if json.loads(out) != json.loads(text):
        raise ValueError(f"the types write {out} for {text}")
    return out


def write_transcript(transcript):
    """Takes a transcript through the types of its vendor."""
    whole, event = TYPES[transcript["vendor"]]
    if transcript["types"] == "raw":
        return
    try:
        out = {"events": [written(event, one) for one in transcript["events"]]}
        if "whole" in transcript:
            out["whole"] = written(whole, transcript["whole"])
    except ValueError as error:
        if transcript["types"] == "refuse":
            return
        raise ValueError(f"{transcript['name']}: {error}") from error
    if transcript["types"] == "refuse":
        raise ValueError(f"{transcript['name']}: the types hold it")
    transcript.update(out)


def said_before(vendor, body):
    """What a request says that the model said before."""
    if vendor == "openai":
        return next((one for one in body["messages"] if one["role"] == "assistant"), None)
    if vendor == "anthropic":
        return next((one["content"] for one in body["messages"] if one["role"] == "assistant"), None)
    if vendor == "google":
        return next((one["parts"] for one in body["contents"] if one["role"] == "model"), None)
    return [one for one in body["input"] if one.get("role") != "user"] or None


def event_name(text):
    try:
        return json.loads(text).get("type")
    except (ValueError, AttributeError):
        return None


def is_said(back, said):
    if isinstance(back, dict):
        return all(said.get(name) == value for name, value in back.items())
    return said[: len(back)] == back


def without(names, value):
    """A request without the members that the types lack."""
    if isinstance(value, dict):
        return {name: without(names, one) for name, one in value.items() if name not in names}
    return [without(names, one) for one in value] if isinstance(value, list) else value


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        streams = bool(body.get("stream")) or ":streamGenerateContent" in self.path
        if self.path.endswith("/chat/completions"):
            kind, answers = (CompletionCreateParamsStreaming if streams else CompletionCreateParamsNonStreaming), completion
        elif self.path.endswith("/responses"):
            kind, answers = (ResponseCreateParamsStreaming if streams else ResponseCreateParamsNonStreaming), response
        elif self.path.endswith("/messages"):
            kind, answers = (MessageCreateParamsStreaming if streams else MessageCreateParamsNonStreaming), message
        else:
            kind, answers = None, lambda body: content(body, streams)
        name = body.get("model") or re.search("models/([^:]*):", self.path)[1]
        transcript = TRANSCRIPTS.get(name)
        checked = without(transcript.get("beside", []), body) if transcript else body
        wrong = fault(kind, checked) if kind else fault_for_gemini(checked)
        if transcript and "back" in transcript and not wrong:
            said = said_before(transcript["vendor"], body)
            if said is not None and not is_said(transcript["back"], said):
                wrong = f"{json.dumps(said)} is not what the model said: {json.dumps(transcript['back'])}"
        if wrong:
            return self.send(422, "application/json", json.dumps({"error": {"message": wrong}}).encode())
        if transcript:
            said = transcript["events"] if streams else [transcript["whole"]]
        else:
            said = [one.model_dump_json(by_alias=True, exclude_unset=True, exclude_none=kind is None) for one in answers(body)]
            said += ["[DONE]"] if answers is completion else []
        if not streams:
            return self.send(200, "application/json", said[0].encode())
        events = ""
        for one in said:
            name = event_name(one)
            events += (f"event: {name}\n" if name else "") + f"data: {one}\n\n"
        self.send(200, "text/event-stream", events.encode())

    def send(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    for transcript in TRANSCRIPTS.values():
        write_transcript(transcript)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()

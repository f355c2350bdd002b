#!/usr/bin/env python3
"""An OpenSentience agent in Python: the protocol in one file, with nothing but the standard library.

A core launches it:  core -- python3 osw_agent.py
It shows that the protocol needs no library of ours; `conformance osw-agent -- python3 osw_agent.py` judges it.

One thread reads, keeps the deadlines and the heartbeats, and writes. It waits for the core and for nothing else: tools that
take their time are generators.
"""

import datetime
import heapq
import itertools
import json
import os
import re
import select
import socket
import struct
import sys
import time
import uuid

MAX_FRAME = 4_194_304  # until the welcome says otherwise
MAX_CALLS = 256
MAX_INPUT = 1 << 20
MAX_OUTPUT = 2 << 20
MAX_REMEMBERED = 256
DRAIN_SECONDS = 5


class Broken(Exception):
    """The stream cannot be read on."""


class Refused(Exception):
    """A call that ends with an error."""

    def __init__(self, code, message, retryable=None):
        super().__init__(message)
        self.code, self.message, self.retryable = code, message, retryable

    def as_error(self):
        error = {"code": self.code, "message": self.message, "where": "agent.runtime"}
        return error | ({} if self.retryable is None else {"retryable": self.retryable})


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def no_doubles(pairs):
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member stands twice")
    return members


def no_constant(word):
    raise ValueError(f"{word} is no JSON")


def is_text(value):
    return isinstance(value, str)


def is_time(text):
    """RFC 3339: a date, a time and an offset."""
    form = r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)"
    if not is_text(text) or not re.fullmatch(form, text):
        return False
    try:
        datetime.datetime.fromisoformat(text[:19])
    except ValueError:
        return False
    return True


def is_whole(value):
    return isinstance(value, int) and not isinstance(value, bool)


class Tool:
    """A tool: its name, what it takes, and what it does. `run` gives an output, or waits in a generator."""

    def __init__(self, name, about, properties, required, run):
        self.name, self.about, self.run = name, about, run
        self.properties, self.required = properties, required

    def spec(self, agent_id):
        schema = {"type": "object", "properties": self.properties, "required": self.required}
        schema["additionalProperties"] = False
        return {"tool_id": f"{agent_id}/{self.name}", "name": self.name, "description": self.about,
                "input_schema": schema, "side_effects": False}

    def check(self, given):
        """The part of JSON Schema that these tools use: required members, their types, no others."""
        types = {"string": is_text, "integer": lambda value: is_whole(value) and value >= 0}
        wrong = [f"/{name}" for name in self.required if name not in given]
        for name, value in given.items():
            wanted = self.properties.get(name)
            if wanted is None or not types[wanted["type"]](value):
                wrong.append("/" + name.replace("~", "~0").replace("/", "~1"))
        if wrong:
            raise Refused("tool.invalid_input", "the input breaks the schema at " + ", ".join(wrong[:10]))


# A tool that takes its time is a generator: it yields seconds to sleep, or ("stdout", text) to say something.


def hello_world(given):
    return {"message": f"Hello, {given.get('name', 'world')}!"}


def stream_counter(given):
    for n in range(1, given["count"] + 1):
        yield "stdout", str(n)
        if given.get("delay_ms"):
            yield given["delay_ms"] / 1000
    return {"count": given["count"]}


def sleep(given):
    yield given["ms"] / 1000
    return {"slept_ms": given["ms"]}


def large_output(given):
    if given["bytes"] > MAX_OUTPUT:
        raise Refused("tool.output_too_large", f"{given['bytes']} bytes where {MAX_OUTPUT} are allowed; ask for less")
    return {"data": "x" * given["bytes"]}


TEXT, NUMBER = {"type": "string"}, {"type": "integer", "minimum": 0}
TOOLS = [
    Tool("hello_world", "Says hello", {"name": TEXT}, [], hello_world),
    Tool("stream_counter", "Counts, a piece of output each", {"count": NUMBER, "delay_ms": NUMBER}, ["count"],
         stream_counter),
    Tool("sleep", "Sleeps; can be cancelled", {"ms": NUMBER}, ["ms"], sleep),
    Tool("invalid_input", "Takes an integer and nothing else", {"value": NUMBER}, ["value"], lambda given: given),
    Tool("large_output", "Answers with so many bytes", {"bytes": NUMBER}, ["bytes"], large_output),
]


class Call:
    """A call that has no result yet."""

    def __init__(self, message, payload):
        self.id, self.tool, self.input = payload["call_id"], payload["tool_id"], payload["input"]
        self.message_id, self.ids = message["id"], echo(message)
        self.key = payload.get("idempotency_key")
        self.steps, self.seq, self.started = None, 0, (now(), time.monotonic())


def echo(message):
    """The ids that every answer to a message repeats."""
    return {name: message[name] for name in ("request_id", "correlation_id", "causation_id")
            if message.get(name) is not None}


class Agent:
    def __init__(self, connection, agent_id, token):
        self.connection, self.agent_id, self.token = connection, agent_id, token
        self.max_frame, self.received, self.begun = MAX_FRAME, bytearray(), time.monotonic()
        self.session, self.interval, self.draining = None, None, False
        self.tools = {f"{agent_id}/{tool.name}": tool for tool in TOOLS}
        self.calls = {}  # by call_id: those without a result
        self.remembered = {}  # (tool, key) -> [input, result or None, calls that wait for it]
        self.agenda, self.order = [], itertools.count()  # (when, n, what)

    # -- frames -------------------------------------------------------------------------------------------------------

    def frames(self, data):
        """The messages that new bytes complete, however they were cut."""
        self.received += data
        while len(self.received) >= 4:
            (length,) = struct.unpack(">I", self.received[:4])
            if length == 0 or length > self.max_frame:
                raise Broken("a frame of no bytes, or over the limit")
            if len(self.received) < 4 + length:
                return
            body = bytes(self.received[4:4 + length])
            del self.received[:4 + length]
            try:
                message = json.loads(body.decode("utf-8"), object_pairs_hook=no_doubles, parse_constant=no_constant)
            except (ValueError, RecursionError) as error:
                raise Broken("no JSON") from error
            if not isinstance(message, dict):
                raise Broken("no object")
            yield message

    def send(self, kind, payload, ids=None, reply_to=None, error=None):
        """Writes a message; `False` where it would be longer than the core takes."""
        message = {"v": 1, "type": kind, "id": str(uuid.uuid4()), "ts": now()}
        if reply_to is not None:
            message["in_reply_to"] = reply_to
        message |= ids or {}
        if error is not None:
            message["error"] = error
        message["payload"] = payload
        body = json.dumps(message, separators=(",", ":")).encode()
        if len(body) > self.max_frame or kind != "agent.hello" and self.token.encode() in body:
            return False
        self.connection.sendall(struct.pack(">I", len(body)) + body)
        return True

    # -- the loop -----------------------------------------------------------------------------------------------------

    def serve(self):
        """Serves until the core is gone or said goodbye; gives the exit code."""
        protocol = {"supported_versions": [1], "capabilities": ["tools", "streaming", "cancellation"]}
        self.send("agent.hello", {"session_token": self.token, "agent_id": self.agent_id, "agent_version": "0.1.0",
                                  "protocol": protocol})
        self.later(10, self.no_welcome)
        while not (self.draining and not self.calls):
            wait = max(0, self.agenda[0][0] - time.monotonic()) if self.agenda else None
            ready, _, _ = select.select([self.connection], [], [], wait)
            data = self.connection.recv(65536) if ready else None
            if data == b"":
                return 0
            for message in self.frames(data or b""):
                self.take(message)
            # What came is taken before what is due, so that neither keeps the other waiting for long.
            for _ in range(64):
                if not self.agenda or self.agenda[0][0] > time.monotonic():
                    break
                heapq.heappop(self.agenda)[2]()
        return 0

    def later(self, seconds, what):
        heapq.heappush(self.agenda, (time.monotonic() + min(seconds, 10**9), next(self.order), what))

    def no_welcome(self):
        if self.session is None:
            raise Broken("no welcome in time")

    # -- messages -----------------------------------------------------------------------------------------------------

    def take(self, message):
        kind, payload = message.get("type"), message.get("payload")
        ids = [message.get(name) for name in ("in_reply_to", "request_id", "correlation_id", "causation_id")]
        sound = (is_whole(message.get("v")) and message["v"] == 1 and is_text(kind) and kind
                 and is_text(message.get("id")) and message["id"] and is_time(message.get("ts"))
                 and isinstance(payload, dict) and all(value is None or is_text(value) for value in ids))
        if self.session is None:
            if not sound or kind != "core.welcome" or message.get("error") is not None:
                raise Broken("refused, or no welcome")
            return self.welcome(payload)
        if not sound or kind == "core.welcome":
            return None  # it breaks the rules: dropped
        handlers = {"core.tool.call": self.call, "core.tool.cancel": self.cancel, "core.ping": self.ping,
                    "core.goodbye": self.goodbye}
        if kind in handlers:
            return handlers[kind](message, payload)
        known = ("core.tools.registered", "core.tools.unregistered", "core.error")
        if kind not in known and not kind.startswith("agent."):
            self.unknown(message)
        return None

    def welcome(self, payload):
        interval, session = payload.get("heartbeat_interval_ms"), payload.get("session_id")
        if payload.get("accepted_version") != 1 or not is_text(session) or not is_whole(interval):
            raise Broken("a welcome that is none")
        self.session, self.interval = session, max(interval, 1) / 1000
        self.max_frame = payload.get("max_frame_bytes", MAX_FRAME)
        self.beat()
        self.send("agent.tools.register", {"tools": [tool.spec(self.agent_id) for tool in TOOLS]})

    def beat(self):
        uptime = int((time.monotonic() - self.begun) * 1000)
        self.send("agent.heartbeat", {"session_id": self.session, "uptime_ms": uptime,
                                      "inflight_calls": len(self.calls), "status": "ok"})
        self.later(self.interval, self.beat)

    def ping(self, message, _):
        self.send("agent.pong", {}, echo(message), message["id"])

    def goodbye(self, *_):
        self.draining = True
        self.later(DRAIN_SECONDS, self.cancel_all)

    def cancel_all(self):
        for call in list(self.calls.values()):
            self.end(call, Refused("tool.canceled", "the core is closing"))

    def unknown(self, message):
        """An unknown type is answered where somebody waits: never an error with an error."""
        request = message.get("request_id")
        live = any(call.ids.get("request_id") == request for call in self.calls.values())
        if request is not None and not live and message.get("in_reply_to") is None and message.get("error") is None:
            error = {"code": "protocol.unknown_type", "message": "a message of an unknown type"}
            self.send("agent.error", {}, echo(message), message["id"], error)

    # -- calls --------------------------------------------------------------------------------------------------------

    def call(self, message, payload):
        if not is_text(payload.get("call_id")):
            return
        if payload["call_id"] in self.calls:
            error = {"code": "protocol.invalid_message", "message": "this call is running"}
            self.send("agent.error", {}, echo(message), message["id"], error)
            return
        payload.setdefault("tool_id", None)
        payload.setdefault("input", None)
        call = Call(message, payload)
        try:
            self.admit(call)
            if self.is_repeated(call):
                return
        except Refused as refusal:
            self.send_result(call, refusal)
            return
        self.calls[call.id] = call
        if is_whole(payload.get("timeout_ms")):
            late = Refused("tool.timeout", "no result in time", True)
            self.later(payload["timeout_ms"] / 1000, lambda: self.end(call, late))
        call.steps = self.steps(call)
        self.step(call)

    def steps(self, call):
        """A tool that answers at once is a generator, too: one without a step."""
        outcome = self.tools[call.tool].run(call.input)
        return outcome if isinstance(outcome, dict) else (yield from outcome)

    def admit(self, call):
        if self.draining:
            raise Refused("agent.disconnected", "the agent is closing", True)
        if not isinstance(call.input, dict):
            raise Refused("tool.invalid_input", "the input is no object")
        if call.tool not in self.tools:
            raise Refused("tool.not_found", "no such tool")
        if len(json.dumps(call.input)) > MAX_INPUT:
            raise Refused("tool.invalid_input", "the input is too large")
        if len(self.calls) >= MAX_CALLS:
            raise Refused("tool.busy", "too many calls at once", True)
        self.tools[call.tool].check(call.input)

    def is_repeated(self, call):
        """Calls with one key have one effect: later ones get the first one's result, or wait for it."""
        if not is_text(call.key):
            return False
        known = self.remembered.get((call.tool, call.key))
        if known is None:
            while len(self.remembered) >= MAX_REMEMBERED:
                del self.remembered[next(iter(self.remembered))]
            self.remembered[call.tool, call.key] = [call.input, None, []]
            return False
        given, result, waiting = known
        if given != call.input:
            raise Refused("tool.conflict", "the key was used with another input")
        self.calls[call.id] = call
        if result is None:
            waiting.append(call)
        else:
            self.end(call, result)
        return True

    def step(self, call):
        """Lets a tool go on until it sleeps, or ends."""
        if self.calls.get(call.id) is not call:
            return
        try:
            wanted = next(call.steps)
        except StopIteration as done:
            self.end(call, done.value)
        except Refused as refusal:
            self.end(call, refusal)
        except Exception:  # whatever it was, the core learns no more than that
            self.end(call, Refused("tool.internal", "the tool failed"))
        else:
            self.later(0 if isinstance(wanted, tuple) else wanted, lambda: self.step(call))
            if isinstance(wanted, tuple):
                self.say(call, *wanted)

    def say(self, call, channel, text):
        call.seq += 1
        payload = {"call_id": call.id, "seq": call.seq, "channel": channel, "data": {"text": text}}
        self.send("agent.tool.stream", payload, call.ids)

    def cancel(self, message, payload):
        if not is_text(payload.get("call_id")):
            return
        call = self.calls.get(payload["call_id"])
        ids = call.ids if call else echo(message)
        self.send("agent.tool.cancel_ack", {"call_id": payload["call_id"], "accepted": call is not None}, ids,
                  message["id"])
        if call:
            self.end(call, Refused("tool.canceled", "canceled"))

    def end(self, call, outcome):
        """Sends the one result of a call, and of those that wait for it; what comes later finds the call gone."""
        if self.calls.get(call.id) is not call:
            return
        del self.calls[call.id]
        self.send_result(call, outcome)
        known = self.remembered.get((call.tool, call.key)) if call.steps is not None and is_text(call.key) else None
        if known is None or known[1] is not None:
            return
        if isinstance(outcome, Refused) and (outcome.retryable or outcome.code == "tool.canceled"):
            del self.remembered[call.tool, call.key]
        else:
            known[1] = outcome
        for other in known[2]:
            self.end(other, outcome)

    def send_result(self, call, outcome):
        wall, mono = call.started
        payload = {"call_id": call.id}
        if isinstance(outcome, Refused):
            payload |= {"status": "canceled" if outcome.code == "tool.canceled" else "failed",
                        "error": outcome.as_error()}
        else:
            payload |= {"status": "succeeded", "output": outcome}
        payload |= {"started_at": wall, "finished_at": max(wall, now()),
                    "metrics": {"duration_ms": int((time.monotonic() - mono) * 1000)}}
        good = not isinstance(outcome, Refused)
        fits = not good or len(json.dumps(outcome)) <= MAX_OUTPUT
        sent = fits and self.send("agent.tool.result", payload, call.ids, call.message_id)
        if good and not sent:
            self.send_result(call, Refused("tool.output_too_large", "the output is too large; return a reference"))


def main():
    try:
        older = os.environ.get("OPENSENTIENCE_SOCKET")
        path = older if older and "OPENSENTIENCE_SOCKET_PATH" not in os.environ else os.environ["OPENSENTIENCE_SOCKET_PATH"]
        token, agent_id = os.environ["OPENSENTIENCE_SESSION_TOKEN"], os.environ["OPENSENTIENCE_AGENT_ID"]
    except KeyError as missing:
        print(f"osw_agent: {missing.args[0]} is not set: a core launches this program", file=sys.stderr)
        return 2
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
            return Agent(connection, agent_id, token).serve()
        except Broken as why:
            print(f"osw_agent: {why}", file=sys.stderr)
            return 3
        except OSError:
            return 0  # the core is gone


if __name__ == "__main__":
    sys.exit(main())

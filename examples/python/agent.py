"""A fleet agent with the habits of deployed ones.

Each habit is a test type: the hub chooses by the job. Like most agents in use it opens a session's stream without a
word and waits for the job, and comes back after a fixed second. With --resume it does better: its sessions outlive their
connections.
"""

import argparse
import queue
import sys
import threading
import time

try:
    import grpc

    import resume
    import wire
except ModuleNotFoundError as lacking:
    print(f"agent: {lacking}; pip install grpcio grpcio-tools", file=sys.stderr)
    sys.exit(2)

END = resume.END


def state(name):
    return wire.TestState.Value(f"TEST_STATE_{name}")


def status(name, message=""):
    return wire.TestResponse(status=wire.TestStatus(state=state(name), message=message))


def result(name, message="", attachments=()):
    return wire.TestResponse(
        result=wire.TestResult(
            status=wire.TestStatus(state=state(name), message=message),
            reports=[wire.StepReport(name="python", status=wire.StepStatus.Value("STEP_STATUS_PASSED"))],
            attachments=attachments,
        )
    )


def text(init):
    return init.payloads[0].attachment.data.decode() if init.payloads else ""


def echo(init, say, call):
    say(status("ACKNOWLEDGED"))
    say(status("RUNNING"))
    say(wire.TestResponse(telemetry=wire.Telemetry(message="echoing", severity=wire.Severity.Value("SEVERITY_INFO"))))
    size = sum(len(payload.attachment.data) for payload in init.payloads)
    words = text(init) if size < 1000 else f"{size} bytes"
    say(result("COMPLETED", words, [payload.attachment for payload in init.payloads]))


def status_after_result(init, say, call):
    say(result("COMPLETED", "result"))
    say(status("COMPLETED", "status"))


def result_after_status(init, say, call):
    say(status("COMPLETED", "status"))
    say(result("COMPLETED", "result"))


def status_only(init, say, call):
    say(status("COMPLETED", "no result follows"))


def failed_status(init, say, call):
    say(status("FAILED", "a payload is missing"))


def nothing(init, say, call):
    pass


def large(init, say, call):
    file = wire.Attachment(name="screenshot", mime_type="image/png", data=b"\x07" * (6 << 20))
    say(result("COMPLETED", "large", [file]))


def reset(init, say, call):
    say(status("RUNNING"))
    call.cancel()


def hang(init, say, call):
    say(status("RUNNING", "for good"))
    time.sleep(3600)


def interrupted(init, say, call):
    """Says ten lines, ten more when it was cut, and its result."""
    say(status("RUNNING"))
    for line in range(20):
        if line == 10:
            print("halfway", flush=True)
            call.was_cut.wait()
        say(wire.TestResponse(telemetry=wire.Telemetry(message=str(line), severity=wire.Severity.Value("SEVERITY_INFO"))))
    say(result("COMPLETED", "all 20"))


#: The first is what the conformance kit asks for.
HABITS = {
    "echo": echo,
    "status-after-result": status_after_result,
    "result-after-status": result_after_status,
    "status-only": status_only,
    "failed-status": failed_status,
    "nothing": nothing,
    "large": large,
    "reset": reset,
    "hang": hang,
    "interrupted": interrupted,
}


def upper(init, say, call):
    made = [
        wire.Payload(
            type=payload.type,
            attachment=wire.Attachment(
                name=payload.attachment.name, mime_type="text/plain", data=payload.attachment.data.upper()
            ),
            metadata=payload.metadata,
        )
        for payload in init.payloads
    ]
    done = wire.TranslationStatus(state=wire.TranslationState.Value("TRANSLATION_STATE_COMPLETED"))
    say(wire.TranslationResponse(result=wire.TranslationResult(status=done, payloads=made)))


def session(open_call, session_id, habit, speaks_first):
    """Runs one session: waits for the job, does it, half-closes, and stays until the hub ends."""
    said = queue.Queue()
    if speaks_first:
        said.put(status("ACKNOWLEDGED"))
    call = open_call(iter(said.get, END), metadata=[("x-session-id", session_id)])
    try:
        habit(next(call), said.put, call)
        said.put(END)
        for _ in call:
            pass
    except (grpc.RpcError, StopIteration) as error:
        said.put(END)
        print(f"session {session_id}: {type(error).__name__}", flush=True)


def resumed(open_call, session_id, habit, _):
    """As `session`, for one that outlives its connection."""
    resume.Session(open_call, session_id).run(habit, status("ACKNOWLEDGED"))


def register(stub, options):
    tests = [wire.Capability(test=wire.TestCapability(type=name)) for name in HABITS]
    translation = wire.Capability(translation=wire.TranslationCapability(type="upper"))
    registration = wire.AgentRegistration(display_name=options.name, capabilities=tests + [translation])
    return stub.Register(registration, timeout=10).client_id


def life(options):
    """Registers, listens, and serves until the connection is lost."""
    with grpc.insecure_channel(options.hub, options=wire.LIMITS) as channel:
        stub = wire.service.AgentHubStub(channel)
        listen(stub, register(stub, options), options, session)


def lives(options):
    """As `life`, and comes back by the id that it has, for as long as the hub knows it."""
    soon = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 100)]
    with grpc.insecure_channel(options.hub, options=wire.LIMITS + soon) as channel:
        stub = wire.service.AgentHubStub(channel)
        client_id = register(stub, options)
        while True:
            try:
                listen(stub, client_id, options, resumed)
            except grpc.RpcError as error:
                print(f"lost: {error.code().name}", flush=True)
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
            time.sleep(0.05)


def listen(stub, client_id, options, session):
    """Serves until the connection is lost."""
    said = queue.Queue()
    if not options.no_ready:
        ready = wire.ListenRequest()
        ready.ready.SetInParent()
        said.put(ready)
    listening = stub.Listen(iter(said.get, END), metadata=[("x-client-id", client_id)])
    print("listening", flush=True)
    accepted = {}
    try:
        for message in listening:
            event = message.WhichOneof("event")
            if event == "session_proposal":
                proposal = message.session_proposal
                habit = None
                if proposal.WhichOneof("details") == "test":
                    habit = HABITS.get(proposal.test.type)
                    accepted[proposal.session_id] = (stub.Execute, habit)
                elif proposal.translation.type == "upper":
                    habit = upper
                    accepted[proposal.session_id] = (stub.Translate, habit)
                answer = wire.SessionAcceptance(session_id=proposal.session_id, accepted=habit is not None)
                said.put(wire.ListenRequest(session_acceptance=answer))
            elif event == "session_ready" and message.session_ready.session_id in accepted:
                session_id = message.session_ready.session_id
                open_call, habit = accepted.pop(session_id)
                arguments = (open_call, session_id, habit, options.speaks_first)
                threading.Thread(target=session, args=arguments, daemon=True).start()
    finally:
        said.put(END)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hub", required=True, help="as 127.0.0.1:9000")
    parser.add_argument("--name", default="python")
    parser.add_argument("--no-ready", action="store_true", help="never say ready")
    parser.add_argument("--speaks-first", action="store_true", help="acknowledge before the job came")
    parser.add_argument("--resume", action="store_true", help="sessions outlive their connections, and the client id does")
    options = parser.parse_args()
    while True:
        try:
            (lives if options.resume else life)(options)
        except grpc.RpcError as error:
            print(f"lost: {error.code().name}", flush=True)
        time.sleep(1)


if __name__ == "__main__":
    main()

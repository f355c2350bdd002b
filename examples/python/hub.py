"""A hub with the habits of deployed ones.

It sends nothing on Listen, not even headers, before the first proposal; it ignores ready; it sends the job as the
stream opens. Jobs come as JSON lines on standard input, news goes as JSON lines to standard output:

    {"kind": "test", "type": "echo", "text": "hello", "bytes": 0}    bytes: so many more, in a payload of their own
    {"do": "end-listen"}                                             ends every Listen with OK
"""

import argparse
import concurrent.futures
import json
import queue
import sys
import threading
import uuid

try:
    import grpc

    import wire
except ModuleNotFoundError as lacking:
    print(f"hub: {lacking}; pip install grpcio grpcio-tools", file=sys.stderr)
    sys.exit(2)

END = object()


class Hub(wire.service.AgentHubServicer):
    def __init__(self, options):
        self.options = options
        self.lock = threading.Lock()
        self.agents = {}
        self.sessions = {}

    def tell(self, event, **more):
        with self.lock:
            print(json.dumps({"event": event, **more}), flush=True)

    # ---- the control plane

    def Register(self, request, context):
        client_id = str(uuid.uuid4())
        self.agents[client_id] = None
        skills = [c.test.type or c.translation.type for c in request.capabilities]
        self.tell("registered", name=request.display_name, skills=skills)
        return wire.AgentRegistrationResponse(client_id=client_id)

    def Listen(self, requests, context):
        client_id = dict(context.invocation_metadata()).get("x-client-id")
        if client_id not in self.agents:
            context.abort(grpc.StatusCode.NOT_FOUND, "Invalid Client ID")
        said = queue.Queue()
        self.agents[client_id] = said
        self.tell("listening")
        reader = threading.Thread(target=self.hear, args=(requests, said), daemon=True)
        reader.start()
        try:
            yield from iter(said.get, END)
        finally:
            self.agents[client_id] = None

    def hear(self, requests, said):
        try:
            for request in requests:
                event = request.WhichOneof("event")
                if event == "ready":
                    self.tell("ready")
                elif event == "session_acceptance":
                    answer = request.session_acceptance
                    self.tell("answer", accepted=answer.accepted, reason=answer.reason)
                    if answer.accepted:
                        ready = wire.SessionReady(session_id=answer.session_id)
                        said.put(wire.ListenResponse(session_ready=ready))
        except Exception:  # grpcio raises a bare one when the call is gone
            pass
        said.put(END)

    def give(self, job):
        payloads = []
        if "text" in job:
            file = wire.Attachment(name="text", mime_type="text/plain", data=job["text"].encode())
            payload = wire.Payload(type="text", attachment=file)
            payload.metadata.update({"n": 1.5, "list": [True, None]})
            payloads.append(payload)
        if job.get("bytes"):
            file = wire.Attachment(name="large", mime_type="", data=b"\x07" * job["bytes"])
            payloads.append(wire.Payload(type="large", attachment=file))
        kind = job.get("kind", "test")
        session_id = ("JOB-" if kind == "test" else "TRN-") + str(uuid.uuid4())
        if kind == "test":
            proposal = wire.SessionProposal(session_id=session_id, test=wire.TestProposalDetails(type=job["type"]))
            init = wire.TestInit(test_type=job["type"], payloads=payloads)
        else:
            details = wire.TranslationProposalDetails(type=job["type"])
            proposal = wire.SessionProposal(session_id=session_id, translation=details)
            init = wire.TranslationInit(target_format=job["type"], payloads=payloads)
        self.sessions[session_id] = init
        listening = [said for said in list(self.agents.values()) if said is not None]
        if listening:
            listening[-1].put(wire.ListenResponse(session_proposal=proposal))
        else:
            self.tell("nobody")

    # ---- the execution plane

    def Execute(self, requests, context):
        yield from self.session(requests, context, wire.TestState, "TEST_STATE_")

    def Translate(self, requests, context):
        yield from self.session(requests, context, wire.TranslationState, "TRANSLATION_STATE_")

    def session(self, requests, context, states, prefix):
        session_id = dict(context.invocation_metadata()).get("x-session-id")
        init = self.sessions.pop(session_id, None)
        if init is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "")
        if self.options.waits_for_first:
            self.report(next(requests), states, prefix)
        yield init
        for request in requests:
            self.report(request, states, prefix)
        self.tell("half-closed")
        if self.options.never_ends:
            threading.Event().wait()

    def report(self, request, states, prefix):
        event = request.WhichOneof("event")
        word = lambda status: states.Name(status.state).removeprefix(prefix)
        if event == "status":
            self.tell("status", state=word(request.status), message=request.status.message)
        elif event == "telemetry":
            self.tell("telemetry", message=request.telemetry.message)
        elif event == "result":
            outcome = request.result
            files = outcome.attachments if prefix == "TEST_STATE_" else [p.attachment for p in outcome.payloads]
            self.tell(
                "result",
                state=word(outcome.status),
                message=outcome.status.message,
                bytes=sum(len(file.data) for file in files),
                text=files[0].data[:100].decode(errors="replace") if files else "",
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--waits-for-first", action="store_true", help="send the job after the agent's first message")
    parser.add_argument("--never-ends", action="store_true", help="never end a session's stream")
    options = parser.parse_args()
    hub = Hub(options)
    threads = concurrent.futures.ThreadPoolExecutor(max_workers=64)
    server = grpc.server(threads, options=wire.LIMITS + [("grpc.so_reuseport", 0)])
    wire.service.add_AgentHubServicer_to_server(hub, server)
    port = server.add_insecure_port(f"127.0.0.1:{options.port}")
    server.start()
    hub.tell("serving", port=port)
    for line in sys.stdin:
        job = json.loads(line)
        if job.get("do") == "end-listen":
            for said in list(hub.agents.values()):
                if said is not None:
                    said.put(END)
        else:
            hub.give(job)
    server.stop(None)


if __name__ == "__main__":
    main()

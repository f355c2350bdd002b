"""A small MCP server on standard input and output: the standard library, three tools.

    core -- agent --mcp python3 examples/python/mcp_server.py
"""

import json
import sys
import threading

TOOLS = {
    "shout": "gives a text back in capitals",
    "count": "counts to n, with progress",
    "wait": "waits until it is cancelled",
}
WAITING = {}
LOCK = threading.Lock()


def say(message):
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def answer(number, text, failed=False):
    say({"id": number, "result": {"content": [{"type": "text", "text": text}], "isError": failed}})


def wait(number, cancelled):
    cancelled.wait()
    WAITING.pop(number, None)
    print(f"mcp server: request {number} was cancelled", file=sys.stderr)


def call(number, params):
    arguments = params.get("arguments") or {}
    name = params["name"]
    if name == "shout":
        text = arguments.get("text")
        answer(number, text.upper() if text else "no text", failed=not text)
    elif name == "count":
        token = (params.get("_meta") or {}).get("progressToken")
        total = arguments.get("n", 3)
        for step in range(1, total + 1):
            report = {"progressToken": token, "progress": step, "total": total}
            say({"method": "notifications/progress", "params": report})
        answer(number, f"counted to {total}")
    elif name == "wait":
        WAITING[number] = threading.Event()
        threading.Thread(target=wait, args=(number, WAITING[number]), daemon=True).start()
    else:
        say({"id": number, "error": {"code": -32602, "message": "no such tool"}})


def main():
    schema = {"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}}
    tools = [{"name": name, "description": about, "inputSchema": schema} for name, about in TOOLS.items()]
    for line in sys.stdin:
        message = json.loads(line)
        method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method == "initialize":
            info = {"name": "three-tools", "version": "1.2.3"}
            version = params.get("protocolVersion", "2025-06-18")
            say({"id": number, "result": {"protocolVersion": version, "serverInfo": info, "capabilities": {"tools": {}, "prompts": {}}}})
        elif method == "tools/list":
            say({"id": number, "result": {"tools": tools}})
        elif method == "tools/call":
            call(number, params)
        elif method == "notifications/cancelled":
            event = WAITING.get(params.get("requestId"))
            if event:
                event.set()
        elif number is not None:
            say({"id": number, "error": {"code": -32601, "message": "not here"}})


if __name__ == "__main__":
    main()

"""The official Python SDK of MCP as the client of an agent's tools.

usage: mcp_client.py stdio PROGRAM [ARGUMENT...]
       mcp_client.py http URL [TOKEN]

Prints one JSON line for each thing that it saw.
"""

import asyncio
import json
import sys
import uuid

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client


def task(capability, payload):
    return {
        "protocolVersion": "2.0",
        "taskId": str(uuid.uuid4()),
        "correlationId": str(uuid.uuid4()),
        "issuedAt": "2025-09-28T10:15:23Z",
        "issuer": {"agentId": "A-python", "agentKind": "agent"},
        "target": {"capability": capability},
        "constitutionalContext": {"pressureLevel": "instant"},
        "payload": payload,
    }


def say(**seen):
    print(json.dumps(seen), flush=True)


async def call(session, tool, arguments, **options):
    answer = await session.call_tool(tool, arguments, **options)
    said = answer.structured_content
    if json.loads(answer.content[0].text) != said:
        raise SystemExit("the text and the structured content differ")
    return answer.is_error, said


async def use(session):
    await session.initialize()
    tools = (await session.list_tools()).tools
    for tool in tools:
        properties = tool.input_schema["properties"]
        say(tool=tool.name, about=tool.description, payload=properties.get("payload"))
    upper = task("text.upper", {"text": "ab"})
    is_error, said = await call(session, "text.upper", upper)
    say(upper=said["output"], error=is_error)
    is_error, said = await call(session, "text.upper", {"task": json.dumps(upper)})
    say(again=said["output"], error=is_error)
    is_error, said = await call(session, "text.upper", task("text.upper", {}))
    say(status=said["status"], code=said["error"]["code"], error=is_error)

    progress = []

    async def on_progress(number, total, message):
        progress.append(json.loads(message)["output"])

    counted = await call(session, "text.count", task("text.count", {"to": 3}), progress_callback=on_progress)
    say(counted=counted[1]["output"], progress=progress)

    long = task("text.count", {"to": 1000})
    about = {"issuer": "A-python", "taskId": long["taskId"]}
    calling = asyncio.create_task(call(session, "text.count", long))
    # One that has ended is told by what follows.
    while (await call(session, "sap_status", about))[1]["status"] not in ("RUNNING", "PARTIAL", "SUCCEEDED"):
        await asyncio.sleep(0.02)
    following = asyncio.create_task(call(session, "sap_follow", about))
    await asyncio.sleep(0.05)
    await call(session, "sap_cancel", about)
    say(cancelled=(await calling)[1]["status"], followed=(await following)[1]["status"])
    is_error, said = await call(session, "sap_status", {**about, "issuer": "A-nobody"})
    say(unknown=said["code"], error=is_error)


async def main(kind, place, *rest):
    if kind == "stdio":
        async with stdio_client(StdioServerParameters(command=place, args=list(rest))) as streams:
            async with ClientSession(*streams) as session:
                await use(session)
    else:
        headers = {"Authorization": f"Bearer {rest[0]}"} if rest else {}
        async with create_mcp_http_client(headers=headers) as http:
            async with streamable_http_client(place, http_client=http) as streams:
                async with ClientSession(*streams[:2]) as session:
                    await use(session)


asyncio.run(main(*sys.argv[1:]))

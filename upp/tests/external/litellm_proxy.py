"""Serves the proxy of LiteLLM with the configuration of that file, and writes the port where it listens.

The port is taken here, by who keeps it: one that is found first and handed over may be another's when the proxy has started.
"""

import os
import socket
import sys

answer = os.dup(1)
# What the proxy prints is no answer.
os.dup2(2, 1)
os.environ["CONFIG_FILE_PATH"] = sys.argv[1]

import uvicorn
from litellm.proxy.proxy_server import app

listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
os.write(answer, f"{listener.getsockname()[1]}\n".encode())
uvicorn.Server(uvicorn.Config(app)).run(sockets=[listener])

"""The messages and the service of package uap.v1, made from the .proto files when this is imported."""

import importlib
import pathlib
import sys
import tempfile

import grpc_tools
from grpc_tools import protoc

PROTO = pathlib.Path(__file__).resolve().parents[2] / "uap-hub-proto" / "proto"

#: Both ways; results bring screenshots.
LIMITS = [
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
]

_well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
_files = sorted(str(path.relative_to(PROTO)) for path in PROTO.glob("uap/v1/*.proto"))

# What was made is needed until it is imported, so that a process that is killed leaves nothing.
with tempfile.TemporaryDirectory(prefix="uap-python-") as _made:
    _arguments = [
        "protoc",
        f"-I{PROTO}",
        f"-I{_well_known}",
        f"--python_out={_made}",
        f"--grpc_python_out={_made}",
    ]
    if protoc.main(_arguments + _files) != 0:
        raise SystemExit("the .proto files do not compile")
    sys.path.insert(0, _made)

    #: The stub, the servicer and what adds one to a server.
    service = importlib.import_module("uap.v1.AgentHub_pb2_grpc")

    for _file in _files:
        _name = pathlib.Path(_file).stem
        _module = importlib.import_module(f"uap.v1.{_name}_pb2")
        for _symbol in vars(_module):
            if not _symbol.startswith("_"):
                globals()[_symbol] = getattr(_module, _symbol)
    sys.path.remove(_made)

"""Tests of log_verify.py: the vectors, damaged copies that must be reported, and torn ends that must not.

Run with: python3 -m unittest test_log_verify (in the folder of this file)
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash
from blake3 import blake3

import log_verify
from log_verify import Keys

HERE = Path(__file__).resolve().parent
VECTORS = HERE.parents[1] / "ubos-common" / "vectors" / "log"
EXPECTED: dict[str, Any] = json.loads((VECTORS / "expected.json").read_text())
NAMES = [vector for vector, expected in EXPECTED.items() if "head" in expected]
DAMAGED = [vector for vector, expected in EXPECTED.items() if "damage" in expected]
ID = bytes.fromhex("0123456789abcdef2d766563746f7273")
OTHER_ID = bytes(range(16))
KEYS = Keys.of(ID)
KIND = b"vectors"
HEAD: str = EXPECTED["plain"]["head"]
HEAD_7 = f"ubos-log:1:01234567-89ab-cdef-2d76-6563746f7273:7:{(VECTORS / 'plain' / ('0' * 15 + '1.seg')).read_bytes()[48:80].hex()}"
BLOCKS_0 = (128, 257, 381, 1256, 1980, 2704)
BLOCKS_1 = (128, 852, 1576)

Change = Callable[[Path], None]


def name(index: int) -> str:
    """The file name of a segment."""
    return f"{index:016x}.seg"


@dataclass
class Run:
    """What a run of the verifier gave."""

    code: int
    out: str
    err: str


def run(folder: Path, *options: str) -> Run:
    """Run the verifier in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = log_verify.main([*options, str(folder)])
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Run(code, out.getvalue(), err.getvalue())


def make_frame(data: bytes, sequence: int, length: int | None = None) -> bytes:
    """A record with right checksums, if wanted with a length that lies."""
    start = struct.pack("<IQ", len(data) if length is None else length, sequence)
    check = xxhash.xxh64_intdigest(data, xxhash.xxh64_intdigest(start, KEYS.salt))
    return start + check.to_bytes(8, "little") + data


def make_block(first: int, previous: bytes, body: bytes, *, count: int = 1, flags: int = 0, durable: int | None = None,
               length: int | None = None) -> bytes:
    """A block with right checksums and digest, if wanted with fields that lie."""
    stated = len(body) if length is None else length
    synced = first if durable is None else durable
    start = b"UBLK" + struct.pack("<IIIQQ", count, stated, flags, first, synced) + previous
    whole = start + xxhash.xxh64_digest(start, KEYS.salt)[::-1] + body
    return whole + blake3(whole, key=KEYS.block).digest()


def make_header(index: int, sequence: int, digest: bytes, *, kind: bytes = KIND, log_id: bytes = ID) -> bytes:
    """The header of a segment with the right keyed hash."""
    start = log_verify.SEGMENT_MAGIC + struct.pack("<II", 2, 128) + log_id
    start += struct.pack("<QQ", index, sequence) + digest + kind.ljust(16, b"\0")
    return start + blake3(start, key=Keys.of(log_id).header).digest()


def rehash(raw: bytes) -> bytes:
    """A segment whose header has the right keyed hash again."""
    return raw[:96] + blake3(raw[:96], key=Keys.of(raw[16:32]).header).digest() + raw[128:]


def edit(index: int, change: Callable[[bytes], bytes]) -> Change:
    """A change of the bytes of one segment."""

    def apply(folder: Path) -> None:
        path = folder / name(index)
        path.write_bytes(change(path.read_bytes()))

    return apply


def flip(index: int, offset: int, bit: int = 0) -> Change:
    """One bit is turned."""
    return edit(index, lambda raw: raw[:offset] + bytes([raw[offset] ^ 1 << bit]) + raw[offset + 1 :])


def put(index: int, offset: int, data: bytes, *, hashed: bool = False) -> Change:
    """Bytes are written over; if wanted the header of the segment is hashed again."""
    finish = rehash if hashed else bytes
    return edit(index, lambda raw: finish(raw[:offset] + data + raw[offset + len(data) :]))


def append(index: int, data: bytes) -> Change:
    """Bytes are added behind the end."""
    return edit(index, lambda raw: raw + data)


def cut(index: int, size: int) -> Change:
    """A file ends at an offset."""
    return edit(index, lambda raw: raw[:size])


def reorder(index: int, bounds: tuple[int, ...], order: list[int]) -> Change:
    """The blocks of a segment stand in another order, are left out or repeated."""
    return edit(index, lambda raw: raw[:128] + b"".join(raw[bounds[i] : bounds[i + 1]] for i in order))


def rename(old: int, new: int) -> Change:
    """A segment gets another name."""
    return lambda folder: (folder / name(old)).rename(folder / name(new)) and None


def remove(index: int) -> Change:
    """A segment is missing."""
    return lambda folder: (folder / name(index)).unlink()


def swap(folder: Path) -> None:
    """Segments 0 and 1 have each other's names."""
    rename(0, 2)(folder)
    rename(1, 0)(folder)
    rename(2, 1)(folder)


def add_third(folder: Path, sequence: int = 9, digest: bytes | None = None, kind: bytes = KIND, log_id: bytes = ID) -> None:
    """An empty segment 2 is added."""
    end = bytes.fromhex(HEAD[-64:]) if digest is None else digest
    (folder / name(2)).write_bytes(make_header(2, sequence, end, kind=kind, log_id=log_id))


def third(**fields: Any) -> Change:
    """A segment 2 with fields of the caller is added."""
    return lambda folder: add_third(folder, **fields)


def both(*changes: Change) -> Change:
    """Several changes, one after the other."""

    def apply(folder: Path) -> None:
        for change in changes:
            change(folder)

    return apply


def directory(index: int) -> Change:
    """A directory has the name of a segment."""

    def apply(folder: Path) -> None:
        (folder / name(index)).unlink(missing_ok=True)
        (folder / name(index)).mkdir()

    return apply


END = bytes.fromhex(HEAD[-64:])
NINE = make_frame(b"nine", 9)


@dataclass(frozen=True)
class Case:
    """A damaged copy of a vector, the heads to give, and a word of the finding."""

    title: str
    change: Change
    word: str = ""
    vector: str = "plain"
    heads: tuple[str, ...] = ()


SEGMENT_FIELDS = {"magic": 0, "version": 8, "header length": 12, "log id": 16, "index": 32, "sequence": 40, "digest": 48,
                  "kind": 80, "kind padding": 95, "keyed hash": 96, "keyed hash end": 127}
BLOCK_FIELDS = {"magic": 0, "count": 4, "count top": 7, "length": 8, "length top": 11, "flags": 12, "first": 16, "durable": 24,
                "previous": 32, "previous end": 63, "checksum": 64, "checksum end": 71, "record length": 72,
                "record length top": 75, "record sequence": 76, "record sequence top": 83, "record checksum": 84,
                "record bytes": 92}


def flip_cases() -> list[Case]:
    """Single bits in every kind of field, in sealed and in last segments, in first, middle and last blocks."""
    cases = [
        Case(f"bit in {title} of segment header {index}", flip(index, offset, 7 - offset % 8))
        for index in (0, 1) for title, offset in SEGMENT_FIELDS.items()
    ]
    for index, start, end in ((0, 128, 257), (0, 381, 1256), (0, 1980, 2704), (1, 128, 852), (1, 852, 1576)):
        at = f"block {start} of segment {index}"
        cases += [Case(f"bit in {title} of {at}", flip(index, start + offset, offset % 8)) for title, offset in BLOCK_FIELDS.items()]
        cases += [Case(f"bit in last byte of records of {at}", flip(index, end - 33)),
                  Case(f"bit in digest of {at}", flip(index, end - 32)),
                  Case(f"bit in end of digest of {at}", flip(index, end - 1, 7))]
    cases += [Case("bit in second frame of a block", flip(0, 381 + 72 + 26 + 4)),
              Case("bit in header of a torn block", flip(1, 870), vector="torn"),
              Case("bit in synced block before a torn one", flip(0, 500), vector="torn"),
              Case("bit in a note", flip(1, 230), vector="repaired"),
              Case("bit in flags of a note", flip(1, 140), vector="repaired"),
              Case("bit in header of an archived log", flip(1, 48), vector="archived"),
              Case("bit in a record of an archived log", flip(1, 300), vector="archived")]
    return cases


def segment_cases() -> list[Case]:
    """Segments and what stands behind them."""
    return [
        Case("bytes behind a sealed segment", append(0, b"x"), "another follows"),
        Case("zeroes and bytes behind a sealed segment", append(0, bytes(5000) + b"x"), "another follows"),
        Case("72 bytes behind the end", append(1, b"\1" * 72)),
        Case("many bytes behind the end", append(1, bytes(range(1, 256)) * 9)),
        Case("few zeroes, then bytes far behind", append(1, bytes(100) + b"x"), ""),
        Case("segment missing in the middle", both(third(), remove(1)), "missing"),
        Case("last segment renamed", rename(1, 2), "missing"),
        Case("last segment renamed to the greatest index", rename(1, (1 << 64) - 1), "missing"),
        Case("first segment renamed and last removed", both(remove(1), rename(0, 1)), "not the name"),
        Case("segments swapped", swap, "not the name"),
        Case("segment doubled", both(third(), lambda folder: shutil.copy(folder / name(1), folder / name(2)) and None), "not the name"),
        Case("another kind in segment 1", put(1, 80, b"others\0", hashed=True), "kind"),
        Case("no kind in segment 1", put(1, 80, bytes(16), hashed=True), "kind"),
        Case("another kind in an empty segment 2", third(kind=b"others"), "kind"),
        Case("kind with capitals", put(0, 80, b"Vectors", hashed=True), "no name"),
        Case("kind with bytes behind its zeroes", put(0, 90, b"x", hashed=True), "no name"),
        Case("kind that begins with a zero", put(0, 80, b"\0", hashed=True), "no name"),
        Case("version 1", put(0, 8, b"\1", hashed=True), "version 1"),
        Case("version 3", put(1, 8, b"\3", hashed=True), "version 3"),
        Case("huge header length", put(0, 12, b"\xff" * 4, hashed=True), "4294967295"),
        Case("another log id in segment 1", put(1, 16, OTHER_ID, hashed=True), "belongs to the log"),
        Case("another log id in segment 2", third(log_id=OTHER_ID), "belongs to the log"),
        Case("index of another segment", put(1, 32, b"\5", hashed=True), "not the name"),
        Case("segment 1 with a later sequence", put(1, 40, b"\x08", hashed=True), "sequence 8"),
        Case("segment 1 with another digest", put(1, 48, bytes(32), hashed=True), "digest"),
        Case("segment 0 with sequence 1", put(0, 40, b"\1", hashed=True), "genesis"),
        Case("segment 0 without the genesis", put(0, 48, bytes(32), hashed=True), "genesis"),
        Case("segment 2 with the greatest sequence", third(sequence=(1 << 64) - 1), "sequence"),
        Case("empty segment 0", cut(0, 0), "0 bytes"),
        Case("empty segment 1", cut(1, 0), "0 bytes"),
        Case("segment of 127 bytes", cut(1, 127), "127 bytes"),
        Case("segment of zeroes", edit(1, lambda raw: bytes(len(raw)))),
        Case("directory as segment 0", directory(0), "no file"),
        Case("directory as segment 1", directory(1), "no file"),
        Case("directory behind the last segment", directory(2), "no file"),
        Case("dangling link as segment 2", lambda folder: (folder / name(2)).symlink_to("nowhere"), "no file"),
    ]


def block_cases() -> list[Case]:
    """Blocks in another order, left out, repeated; sealed segments that end too early; zeroed parts."""
    cases = [
        Case("first blocks of segment 0 swapped", reorder(0, BLOCKS_0, [1, 0, 2, 3, 4])),
        Case("last blocks of segment 0 swapped", reorder(0, BLOCKS_0, [0, 1, 2, 4, 3])),
        Case("blocks of the last segment swapped", reorder(1, BLOCKS_1, [1, 0])),
        Case("first block of segment 0 removed", reorder(0, BLOCKS_0, [1, 2, 3, 4])),
        Case("middle block of segment 0 removed", reorder(0, BLOCKS_0, [0, 1, 3, 4])),
        Case("last block of segment 0 removed", reorder(0, BLOCKS_0, [0, 1, 2, 3]), "begins with sequence 7"),
        Case("first block of the last segment removed", reorder(1, BLOCKS_1, [1]), "wrong place"),
        Case("note removed", reorder(1, (128, 308, 446), [1]), vector="repaired"),
        Case("block of segment 0 repeated", reorder(0, BLOCKS_0, [0, 0, 1, 2, 3, 4])),
        Case("last block of segment 0 repeated", reorder(0, BLOCKS_0, [0, 1, 2, 3, 4, 4])),
        Case("first block of the last segment repeated", reorder(1, BLOCKS_1, [0, 0, 1])),
        Case("last block repeated", reorder(1, BLOCKS_1, [0, 1, 1]), "wrong place"),
        Case("older block behind the end", reorder(1, BLOCKS_1, [0, 1, 0]), "wrong place"),
        Case("all blocks of segment 0 removed", reorder(0, BLOCKS_0, [])),
        Case("frame and bytes of a synced block zeroed", put(1, 200, bytes(620)), "synced"),
        Case("header of a synced block zeroed", put(1, 128, bytes(72)), "synced"),
        Case("synced block zeroed", put(1, 128, bytes(724)), "synced"),
        Case("digest of a synced block zeroed", put(1, 820, bytes(32)), "synced"),
        Case("zeroes inside a record of the last block", put(1, 1000, bytes(100))),
    ]
    for size in (129, 199, 256, 300, 380, 381, 452, 1255, 1256, 1500, 1980, 2100, 2672, 2703):
        cases.append(Case(f"sealed segment truncated at {size}", cut(0, size)))
    cases.append(Case("end of a sealed segment zeroed", put(0, 2690, bytes(14)), "another follows"))
    return cases


def head_cases() -> list[Case]:
    """Heads that the log does not meet."""
    other = HEAD.replace("01234567", "11234567")
    return [
        Case("cut at a block, head kept", cut(1, 852), "was cut", heads=(HEAD,)),
        Case("cut at a block and zeroes, head kept", put(1, 852, bytes(724)), "was cut", heads=(HEAD,)),
        Case("cut behind the header, head kept", cut(1, 128), "was cut", heads=(HEAD,)),
        Case("last segment removed, head kept", remove(1), "was cut", heads=(HEAD,)),
        Case("torn log, head kept", lambda folder: None, "was cut", "torn", heads=(HEAD,)),
        Case("repaired log, older head kept", lambda folder: None, "another", "repaired", heads=(HEAD,)),
        Case("head of another log", lambda folder: None, "another log", heads=(other,)),
        Case("one good head, one of another log", lambda folder: None, "another log", heads=(HEAD, other)),
        Case("head with another digest", lambda folder: None, "another", heads=(HEAD[:-1] + "f",)),
        Case("head inside a block", lambda folder: None, "no block ends", heads=(HEAD.replace(":9:", ":3:"),)),
        Case("head at the start, another digest", lambda folder: None, "another", heads=(HEAD.replace(":9:", ":0:"),)),
        Case("head of the greatest sequence", lambda folder: None, "was cut", heads=(HEAD.replace(":9:", f":{2**64 - 1}:"),)),
        Case("archived, head does not fit the start", lambda folder: None, "another", "archived", (HEAD.replace(":9:", ":7:"),)),
        Case("archived, head before what is there", lambda folder: None, "before the first", "archived", (HEAD.replace(":9:", ":5:"),)),
        Case("damage before one head, another head wrong", flip(1, 900), "another", heads=(HEAD_7[:-1] + "0", HEAD)),
    ]


def too_long_block() -> bytes:
    """The header of a block above the bound whose checksum ends in a zero, so that its last byte might be missing."""
    for length in range((32 << 20) + 1, 1 << 32):
        header = make_block(9, END, b"", length=length)[:72]
        if header[-1] == 0:
            return header
    raise AssertionError("one in 256 does")


def forged_cases() -> list[Case]:
    """Blocks with right checksums and digests that break another rule."""
    big = make_frame(b"x" * 700, 9)
    return [
        Case("no record", append(1, make_block(9, END, NINE, count=0)), "no record"),
        Case("unknown flags", append(1, make_block(9, END, NINE, flags=2)), "flags"),
        Case("flags with the note and another", append(1, make_block(9, END, NINE, flags=3)), "flags"),
        Case("huge body", append(1, make_block(9, END, NINE, length=0xFFFFFFFF)), "bound"),
        Case("body one above the bound", append(1, make_block(9, END, NINE, length=(32 << 20) + 1)), "bound"),
        Case("more records than the body has", append(1, make_block(9, END, NINE, count=2)), "ends before record 10"),
        Case("huge number of records", append(1, make_block(9, END, NINE, count=0xFFFFFFFF)), "ends before record 10"),
        Case("fewer records than the body has", append(1, make_block(9, END, NINE + make_frame(b"", 10))), "behind its last"),
        Case("bytes behind the records", append(1, make_block(9, END, NINE + b"x")), "behind its last"),
        Case("empty body", append(1, make_block(9, END, b"")), "ends before record 9"),
        Case("lying record length", append(1, make_block(9, END, make_frame(b"nine", 9, 5))), "beyond"),
        Case("huge record length", append(1, make_block(9, END, make_frame(b"nine", 9, 0xFFFFFFFF))), "beyond"),
        Case("record above the bound", append(1, make_block(9, END, make_frame(b"r" * ((16 << 20) + 1), 9))), "bound"),
        Case("record with the wrong sequence", append(1, make_block(9, END, make_frame(b"nine", 10))), "says that it is 10"),
        Case("record with the wrong checksum", append(1, make_block(9, END, big[:-1] + b"y")), "checksum"),
        Case("block with a later sequence", append(1, make_block(10, END, make_frame(b"", 10))), "wrong place"),
        Case("block with another digest before it", append(1, make_block(9, bytes(32), NINE)), "wrong place"),
        Case("record above the bound that holds a sector of zeroes",
             append(1, make_block(9, END, make_frame(bytes((16 << 20) + 1), 9))), "bound"),
        Case("body above the bound, a checksum that ends in a zero", append(1, too_long_block() + bytes(3000)), "bound"),
        Case("wrong record under a right digest, in a block with a sector of zeroes",
             append(1, make_block(9, END, make_frame(bytes(2000), 9, 2500))), "beyond"),
        Case("records beyond the greatest sequence",
             append(1, make_block(2**64 - 1, END, make_frame(b"", 2**64 - 1))), "greatest sequence"),
        Case("lost block before one that says it was synced",
             append(1, bytes(512) + make_block(10, bytes(32), make_frame(b"", 10), durable=10)), "synced"),
        Case("synced block far behind, over the edge of a piece",
             append(1, bytes((1 << 20) - 2) + make_block(10, bytes(32), make_frame(b"", 10), durable=10)), "synced"),
    ]


ALL_CASES = flip_cases() + segment_cases() + block_cases() + head_cases() + forged_cases()


class LogTest(unittest.TestCase):
    """Copies of vectors in a folder of the test."""

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)
        self.count = 0

    def copy(self, vector: str, change: Change = lambda folder: None) -> Path:
        """A new copy of a vector, changed."""
        self.count += 1
        folder = self.root / f"copy{self.count}"
        shutil.copytree(VECTORS / vector, folder)
        change(folder)
        return folder

    def expect_sound(self, folder: Path, torn: bool, sequence: int, *heads: str) -> dict[str, Any]:
        """The log must be sound, torn or not, and end at a sequence."""
        result = run(folder, "--json", *(f"--head={head}" for head in heads))
        found = json.loads(result.out)
        self.assertEqual((result.code, found["findings"], found["torn"], result.err), (0, [], torn, ""))
        self.assertEqual(int(found["head"].split(":")[3]), sequence)
        return found


class VectorTest(LogTest):
    """The vectors as they are."""

    def test_expected(self) -> None:
        for vector in NAMES:
            with self.subTest(vector):
                result = run(VECTORS / vector, "--json", "--head", EXPECTED[vector]["head"])
                self.assertEqual((result.code, result.err), (0, ""))
                self.assertEqual(json.loads(result.out), EXPECTED[vector] | {"findings": []})

    def test_damaged(self) -> None:
        self.assertGreaterEqual(len(DAMAGED), 4)
        for vector in DAMAGED:
            with self.subTest(vector):
                place = EXPECTED[vector]["damage"]
                found = run(VECTORS / vector)
                self.assertEqual((found.code, found.err), (1, ""))
                start = f"segment {place['segment']:016x}, offset {place['offset']}, next sequence {place['sequence']}: "
                self.assertTrue(found.out.startswith(start), found.out)

    def test_lines(self) -> None:
        self.assertEqual(run(VECTORS / "plain").out, f"records 9, blocks 7, segments 2, head {HEAD}\n")
        self.assertRegex(run(VECTORS / "torn").out, r"^records 8, .* torn at segment 0{15}1, offset 852: .*\n$")

    def test_genesis(self) -> None:
        self.assertEqual(KEYS.genesis.hex(), EXPECTED["genesis"])

    def test_cut_file(self) -> None:
        raw = (VECTORS / "repaired" / name(1)).read_bytes()
        bytes_cut = (VECTORS / "repaired" / "0000000000000001-80.cut").read_bytes()
        note = struct.pack("<QQQ", 1, 0x80, len(bytes_cut)) + blake3(bytes_cut).digest()
        self.assertEqual(raw[128 + 72 + 20 : 128 + 72 + 20 + 56], note)

    def test_heads_are_met(self) -> None:
        genesis = HEAD.replace(":9:", ":0:")[:-64] + EXPECTED["genesis"]
        self.expect_sound(VECTORS / "plain", False, 9, genesis, HEAD_7, HEAD, HEAD, EXPECTED["torn"]["head"])
        self.expect_sound(VECTORS / "archived", False, 9, HEAD_7, HEAD)
        self.expect_sound(VECTORS / "torn", True, 8, EXPECTED["torn"]["head"])


class DamageTest(LogTest):
    """Every damaged copy must be reported."""

    def test_enough_cases(self) -> None:
        self.assertGreaterEqual(len({case.title for case in ALL_CASES}), 60)
        self.assertEqual(len({case.title for case in ALL_CASES}), len(ALL_CASES))

    def test_cases(self) -> None:
        for case in ALL_CASES:
            with self.subTest(case.title):
                folder = self.copy(case.vector, case.change)
                options = [f"--head={head}" for head in case.heads]
                result = run(folder, *options)
                self.assertEqual((result.code, result.err), (1, ""), result.out)
                *findings, total = result.out.splitlines()
                self.assertRegex(total, r"^records \d+, blocks \d+, segments \d+, head ")
                for finding in findings:
                    self.assertRegex(finding, r"^segment [0-9a-f]{16}, offset \d+, next sequence \d+: .")
                self.assertIn(case.word, "\n".join(findings))
                self.assertEqual(json.loads(run(folder, "--json", *options).out)["findings"], findings)

    def test_a_bit_of_every_byte(self) -> None:
        folder = self.copy("plain")
        for index in (0, 1):
            path = folder / name(index)
            raw = path.read_bytes()
            for offset in range(len(raw)):
                flip(index, offset, offset % 8)(folder)
                self.assertEqual(run(folder).code, 1, f"segment {index}, offset {offset}")
                path.write_bytes(raw)

    def test_every_truncation_of_a_sealed_segment(self) -> None:
        folder = self.copy("plain")
        raw = (folder / name(0)).read_bytes()
        for size in range(len(raw)):
            (folder / name(0)).write_bytes(raw[:size])
            self.assertEqual(run(folder).code, 1, f"size {size}")

    def test_every_cut_with_the_head_kept(self) -> None:
        folder = self.copy("plain")
        raw = (folder / name(1)).read_bytes()
        for size in range(len(raw)):
            (folder / name(1)).write_bytes(raw[:size])
            self.assertEqual(run(folder, "--head", HEAD).code, 1, f"size {size}")


class EndTest(LogTest):
    """Ends that are sound or torn by sections 4 and 8, and their neighbours that are damage."""

    def test_every_truncation_of_the_last_segment_is_torn(self) -> None:
        folder = self.copy("plain")
        raw = (folder / name(1)).read_bytes()
        for size in range(128, len(raw)):
            (folder / name(1)).write_bytes(raw[:size])
            self.expect_sound(folder, size not in BLOCKS_1, 7 if size < 852 else 8)

    def test_every_prefix_of_the_last_block_before_zeroes_is_torn(self) -> None:
        folder = self.copy("plain")
        raw = (folder / name(1)).read_bytes()
        self.assertNotEqual(raw[-1], 0)
        for size in range(852, len(raw)):
            (folder / name(1)).write_bytes(raw[:size].ljust(4096, b"\0"))
            self.expect_sound(folder, size > 852, 8)

    def test_zeroes_behind_are_no_fault(self) -> None:
        folder = self.copy("plain", both(append(0, bytes(5000)), append(1, bytes(70000))))
        self.expect_sound(folder, False, 9, HEAD)
        os.truncate(folder / name(1), 1 << 42)
        self.expect_sound(folder, False, 9, HEAD)

    def test_few_bytes_behind_are_torn(self) -> None:
        self.expect_sound(self.copy("plain", append(1, b"x" * 71)), True, 9, HEAD)
        self.expect_sound(self.copy("plain", append(1, bytes(70) + b"x" + bytes(900))), True, 9, HEAD)

    def test_zero_sector_in_the_records(self) -> None:
        self.expect_sound(self.copy("plain", put(1, 1024, bytes(512))), True, 8)
        self.assertEqual(run(self.copy("plain", put(1, 1024, bytes(511)))).code, 1)
        self.assertEqual(run(self.copy("plain", put(1, 1025, bytes(511)))).code, 1)

    def test_zero_sector_that_does_not_touch_what_fails(self) -> None:
        body = make_frame(bytes(2000), 9) + make_frame(b"ten", 10)
        change = append(1, make_block(9, END, body, count=2))
        self.expect_sound(self.copy("plain", change), False, 11)
        last = 1576 + 72 + len(body) - 1
        self.assertEqual(run(self.copy("plain", both(change, flip(1, last)))).code, 1)
        self.assertEqual(run(self.copy("plain", both(change, flip(1, last + 1)))).code, 1)
        self.expect_sound(self.copy("plain", both(change, flip(1, 1576 + 72 + 14))), True, 9)

    def test_frames_behind_one_that_is_lost(self) -> None:
        body = make_frame(b"a" * 10, 9) + make_frame(b"b" * 1000, 10) + make_frame(b"c" * 900, 11)
        change = append(1, make_block(9, END, body, count=3))
        self.expect_sound(self.copy("plain", change), False, 12)
        frame = 1576 + 72 + 30 + 4
        self.assertEqual(run(self.copy("plain", both(change, flip(1, frame)))).code, 1)
        self.expect_sound(self.copy("plain", both(change, flip(1, frame), put(1, 3072, bytes(512)))), True, 9)

    def test_zero_sector_in_the_digest(self) -> None:
        body = make_frame(b"d" * (2048 - 1576 - 72 - 20 - 10), 9)
        block = make_block(9, END, body)
        change = both(append(1, block), put(1, 2048, bytes(22)))
        self.expect_sound(self.copy("plain", change), True, 9)
        self.assertEqual(run(self.copy("plain", both(change, flip(1, 2047)))).code, 0, "rule 3: the zero sector touches the digest")
        self.assertEqual(run(self.copy("plain", both(append(1, block), put(1, 2048, bytes(21)), flip(1, 2047)))).code, 1)

    def test_zero_sector_in_the_header(self) -> None:
        digest = bytes.fromhex(EXPECTED["repaired"]["head"][-64:])
        change = append(1, make_block(9, digest, make_frame(b"e" * 1500, 9)))
        self.expect_sound(self.copy("repaired", change), False, 10)
        self.expect_sound(self.copy("repaired", both(change, put(1, 512, bytes(512)))), True, 9)
        self.assertEqual(run(self.copy("repaired", both(change, put(1, 512, bytes(511))))).code, 1)

    def test_blocks_behind_count_only_if_they_say_synced(self) -> None:
        first = make_block(9, END, make_frame(b"f" * 2000, 9))
        for durable, code in ((9, 0), (10, 1)):
            second = make_block(10, first[-32:], make_frame(b"g", 10), durable=durable)
            change = both(append(1, first + second), put(1, 2560, bytes(512)))
            with self.subTest(durable=durable):
                self.assertEqual(run(self.copy("plain", change)).code, code)

    def test_a_block_behind_proves_only_where_it_holds_by_itself(self) -> None:
        lost = make_block(9, END, make_frame(b"f" * 1500, 9))
        inner = make_block(50, END, make_frame(b"i", 50), durable=40)
        for title, later, code in (
            ("it comes before", make_block(8, END, make_frame(b"", 8), durable=10), 0),
            ("its records do not fit", make_block(10, END, make_frame(b"g", 11), durable=10), 0),
            ("it stands in one that holds", make_block(10, lost[-32:], make_frame(b"r" + inner, 10), durable=9), 0),
            ("it holds", make_block(10, lost[-32:], make_frame(b"r", 10), durable=10), 1),
        ):
            change = both(append(1, lost + later), put(1, 2048, bytes(512)))
            with self.subTest(title):
                self.assertEqual(run(self.copy("plain", change)).code, code)

    def test_headers_that_lie_cost_a_bounded_time(self) -> None:
        heads = b"".join(make_block(10 + at, END, b"", length=200_000 - 72 * at)[:72] for at in range(1, 1500))
        bytes_behind = bytes(512) + b"x" * 100 + heads + b"y" * 200_000
        self.assertEqual(run(self.copy("plain", append(1, bytes_behind))).code, 1)

    def test_first_sector_shared_with_the_block_before(self) -> None:
        block = make_block(9, END, make_frame(b"s" * 1500, 9))
        self.expect_sound(self.copy("plain", both(append(1, block), put(1, 1576, bytes(2048 - 1576)))), True, 9)
        self.assertEqual(run(self.copy("plain", both(append(1, block), put(1, 1576, bytes(2047 - 1576))))).code, 1)

    def test_notes_that_are_not_known(self) -> None:
        folder = self.copy("plain", append(1, make_block(9, END, NINE, flags=1)))
        found = self.expect_sound(folder, False, 10)
        self.assertEqual((found["cuts"], len(found["records"]), found["blocks"]), (0, 9, 8))

    def test_empty_last_segment_and_other_names(self) -> None:
        folder = self.copy("plain", third())
        for other in ("segment.new", "0000000000000009-80.cut", "000000000000000A.seg", "0.seg", name(5) + ".cut.new"):
            (folder / other).write_bytes(b"anything")
        self.assertEqual(self.expect_sound(folder, False, 9, HEAD)["segments"], 3)

    def test_first_segment_archived(self) -> None:
        self.expect_sound(self.copy("plain", remove(0)), False, 9, HEAD_7, HEAD)

    def test_no_kind(self) -> None:
        folder = self.copy("plain", both(put(0, 80, bytes(16), hashed=True), put(1, 80, bytes(16), hashed=True)))
        self.assertEqual(self.expect_sound(folder, False, 9)["kind"], "")


class CommandTest(LogTest):
    """Exit code 2, and no stack trace whatever the files hold."""

    def command(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run the command as a process."""
        return subprocess.run([sys.executable, str(HERE / "log_verify.py"), *map(str, arguments)], capture_output=True,
                              text=True, timeout=60, check=False)

    def test_exit_codes(self) -> None:
        self.assertEqual(self.command(VECTORS / "plain").returncode, 0)
        self.assertEqual(self.command("--head", HEAD, "--json", VECTORS / "torn").returncode, 1)

    def test_wrong_usage(self) -> None:
        plain, empty, only = VECTORS / "plain", self.root / "empty", self.root / "only"
        empty.mkdir()
        (only / name(0)).mkdir(parents=True)
        wrong: list[tuple[str | Path, ...]] = [
            (), (plain, plain), ("--what", plain), (plain, "--head"), (empty,), (only,), (self.root / "none",), (VECTORS / "expected.json",),
            ("",), *(("--head", head, plain) for head in (
                "", "x", HEAD[:-1], HEAD + "0", HEAD.upper(), HEAD + "\n", HEAD.replace(":9:", ":-9:"), HEAD.replace(":9:", ":09:"),
                HEAD.replace(":9:", f":{2**64}:"), HEAD.replace(":9:", ":" + "9" * 5000 + ":"), HEAD.replace("log:1", "log:2"),
                HEAD.replace(":9:", ":\u0669:"))),
        ]
        for arguments in wrong:
            with self.subTest(arguments):
                result = self.command(*arguments)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertIn("log_verify.py", result.stderr)
                self.assertNotIn("Traceback", result.stderr)

    def test_random_bytes(self) -> None:
        rng = random.Random(8)
        folder = self.copy("plain")
        originals = [(folder / name(index)).read_bytes() for index in (0, 1)]
        for _ in range(2000):
            for index, raw in enumerate(originals):
                data = bytearray(raw)
                for _ in range(rng.randrange(4)):
                    start = rng.randrange(len(data))
                    data[start : start + rng.randrange(1, 900)] = rng.choice((b"\0", b"\xff", b"UBLK", rng.randbytes(4))) * rng.randrange(300)
                    data = data or bytearray(1)
                (folder / name(index)).write_bytes(data)
            result = run(folder)
            self.assertIn(result.code, (0, 1))
            self.assertEqual(result.code == 1, len(result.out.splitlines()) > 1)


if __name__ == "__main__":
    unittest.main()

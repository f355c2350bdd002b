"""Prove a log from its bytes, as ubos-common/FORMAT.md (version 2) says; sections are those of that page.

Usage: log_verify.py [--head HEAD]... [--json] FOLDER

Without --json, one line for each finding, then one line that sums up what was proven; with --json, one object.
Exit code 0: the log is sound (a torn end is no fault); 1: at least one finding; 2: wrong usage, or no log in the folder.

The walk stops at the first damage: what stands behind it is not proven. Only the header of a segment, one block and pieces of
fixed size are ever held in memory, besides the list of records.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import re
import struct
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

try:
    import xxhash
    from blake3 import blake3
except ModuleNotFoundError as lacking:
    print(f"log_verify: {lacking}; pip install blake3 xxhash", file=sys.stderr)
    sys.exit(2)

SEGMENT_NAME = re.compile(r"([0-9a-f]{16})\.seg")
SEGMENT_MAGIC = bytes.fromhex("8955424F534C4F47")
SEGMENT_HEADER = struct.Struct("<8sII16sQQ32s16s32s")
VERSION = 2

BLOCK_MAGIC = b"UBLK"
BLOCK_HEADER = struct.Struct("<4sIIIQQ32sQ")
CHECKED_HEADER_BYTES = 64
FLAG_NOTE = 1
DIGEST_BYTES = 32

FRAME = struct.Struct("<IQQ")
CHECKED_FRAME_BYTES = 12
CUT_NOTE_BYTES = 56

MAX_RECORD = 16 << 20
MAX_BODY = 32 << 20
MAX_NUMBER = (1 << 64) - 1
SECTOR = 512
HASHES_A_BYTE = 8
CHUNK = 1 << 20

CONTEXT = "ubos-common 2026 log format 2: "
KIND = re.compile(rb"[a-z0-9-]{0,16}\0*")
HEAD_TEXT = re.compile(
    r"ubos-log:1:([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}):(0|[1-9][0-9]{0,19}):([0-9a-f]{64})"
)


class Damage(Exception):
    """Something that the page does not allow; the text says what."""


class NoLog(Exception):
    """There is nothing to prove; the text says why."""


@dataclass(frozen=True)
class Head:
    """The end of a log (section 1)."""

    log_id: bytes
    sequence: int
    digest: bytes

    @classmethod
    def parse(cls, text: str) -> Head:
        """Read the text form; ValueError if it is none."""
        match = HEAD_TEXT.fullmatch(text)
        if match is None or int(match[2]) > MAX_NUMBER:
            raise ValueError("not of the form ubos-log:1:ID:SEQUENCE:DIGEST")
        return cls(uuid.UUID(match[1]).bytes, int(match[2]), bytes.fromhex(match[3]))

    def __str__(self) -> str:
        return f"ubos-log:1:{uuid.UUID(bytes=self.log_id)}:{self.sequence}:{self.digest.hex()}"


@dataclass(frozen=True)
class Keys:
    """What is derived from the id of a log (section 2)."""

    block: bytes
    header: bytes
    genesis: bytes
    salt: int

    @classmethod
    def of(cls, log_id: bytes) -> Keys:
        """Derive the keys of the log with this id."""

        def derive(role: str) -> bytes:
            return blake3(log_id, derive_key_context=CONTEXT + role).digest()

        salt = int.from_bytes(derive("checksum salt")[:8], "little")
        return cls(derive("block"), derive("segment header"), derive("genesis"), salt)


class SegmentFile:
    """Bounded reads of one segment; its size is the one it had when it was opened."""

    def __init__(self, path: str, index: int) -> None:
        self.index = index
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        self.size = os.fstat(self._fd).st_size

    def __enter__(self) -> SegmentFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def read(self, offset: int, length: int) -> bytes:
        """The bytes from offset on: length of them, or fewer if the file ends before."""
        wanted = max(0, min(length, self.size - offset))
        parts: list[bytes] = []
        while wanted:
            part = os.pread(self._fd, wanted, offset)
            if not part:
                raise Damage("the file became shorter while it was read")
            parts.append(part)
            offset += len(part)
            wanted -= len(part)
        return b"".join(parts)

    def chunks(self, start: int) -> Iterator[tuple[int, bytes]]:
        """Offset and bytes of pieces from start to the end of the file; holes, which are zero, are left out."""
        offset = start
        while offset < self.size:
            offset = self._next_data(offset)
            piece = self.read(offset, CHUNK)
            if piece:
                yield offset, piece
            offset += CHUNK

    def _next_data(self, offset: int) -> int:
        try:
            return os.lseek(self._fd, offset, os.SEEK_DATA)
        except OSError as error:
            return self.size if error.errno == errno.ENXIO else offset

    def content_end(self, start: int) -> int:
        """The offset behind the last byte that is not zero, or start if only zeroes follow it."""
        end = start
        for offset, piece in self.chunks(start):
            stripped = len(piece.rstrip(b"\0"))
            if stripped:
                end = offset + stripped
        return end

    def find_magic(self, start: int) -> Iterator[int]:
        """Every offset from start on at which the magic of a block stands."""
        tail, tail_end = b"", start
        for offset, piece in self.chunks(start):
            joined = tail + piece if offset == tail_end else piece
            base = offset + len(piece) - len(joined)
            at = joined.find(BLOCK_MAGIC)
            while at >= 0:
                yield base + at
                at = joined.find(BLOCK_MAGIC, at + 1)
            tail, tail_end = joined[-(len(BLOCK_MAGIC) - 1) :], offset + len(piece)

    def zero_sector_touches(self, start: int, end: int, floor: int) -> bool:
        """Whether one of the sectors that bytes start to end - 1 lie in is all zero, from floor on and as far as the file goes."""
        first, behind = start // SECTOR * SECTOR, min(-(-end // SECTOR) * SECTOR, self.size)
        if start >= end or start >= behind:
            return False
        data = bytes(max(0, floor - first)) + self.read(max(first, floor), behind - max(first, floor))
        return any(not any(data[at : at + SECTOR]) for at in range(0, len(data), SECTOR))


@dataclass(frozen=True)
class SegmentHeader:
    """The fields of the header of a segment that the walk needs (section 4)."""

    log_id: bytes
    sequence: int
    digest: bytes
    kind: str


def read_segment_header(segment: SegmentFile) -> SegmentHeader:
    """Read the header of a segment and check all that needs no other segment; Damage if something is wrong."""
    raw = segment.read(0, SEGMENT_HEADER.size)
    if len(raw) < SEGMENT_HEADER.size:
        raise Damage(f"the file has {len(raw)} bytes, less than the header of a segment")
    magic, version, length, log_id, index, sequence, digest, kind, check = SEGMENT_HEADER.unpack(raw)
    if magic != SEGMENT_MAGIC:
        raise Damage("the file does not begin like a segment")
    if version != VERSION:
        raise Damage(f"the segment has version {version}; only version {VERSION} can be read")
    if length != SEGMENT_HEADER.size:
        raise Damage(f"the header of the segment says that it has {length} bytes, not {SEGMENT_HEADER.size}")
    if blake3(raw[: -len(check)], key=Keys.of(log_id).header).digest() != check:
        raise Damage("the keyed hash of the header of the segment is wrong")
    if index != segment.index:
        raise Damage(f"the header says segment {index:016x}, which is not the name of the file")
    if not KIND.fullmatch(kind):
        raise Damage("the kind is no name")
    return SegmentHeader(log_id, sequence, digest, kind.rstrip(b"\0").decode("ascii"))


@dataclass(frozen=True)
class BlockHeader:
    """The header of a block whose own checks are passed; its place is not judged (section 5)."""

    raw: bytes
    count: int
    length: int
    note: bool
    first: int
    durable: int
    previous: bytes

    @property
    def block_bytes(self) -> int:
        """The length of the whole block."""
        return BLOCK_HEADER.size + self.length + DIGEST_BYTES

    @classmethod
    def parse(cls, raw: bytes, keys: Keys) -> BlockHeader:
        """Check the bytes of a header; Damage if they are none that is sound."""
        if len(raw) < BLOCK_HEADER.size:
            raise Damage("the file ends before the header of a block does")
        magic, count, length, flags, first, durable, previous, check = BLOCK_HEADER.unpack(raw)
        if magic != BLOCK_MAGIC:
            raise Damage("what follows does not begin like a block")
        if xxhash.xxh64_intdigest(raw[:CHECKED_HEADER_BYTES], keys.salt) != check:
            raise Damage("the checksum of the header of the block is wrong")
        if count == 0:
            raise Damage("the block says that it has no record")
        if first + count > MAX_NUMBER:
            raise Damage("the block has records beyond the greatest sequence")
        if flags not in (0, FLAG_NOTE):
            raise Damage(f"the block has the unknown flags {flags:#x}")
        return cls(raw, count, length, flags == FLAG_NOTE, first, durable, previous)


@dataclass(frozen=True)
class Record:
    """A record that was proven."""

    sequence: int
    length: int
    blake3: str


@dataclass
class Block:
    """What stands at an offset of a segment: a block, or what is there of one."""

    offset: int
    header: BlockHeader | None = None
    complete: bool = False
    stored: bytes = b""
    digest: bytes = b""
    too_large: str = ""
    records: list[Record] = field(default_factory=list)
    failed: list[tuple[int, int]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def sealed(self) -> bool:
        """Whether its digest is right: it was there in full once, whatever its records are."""
        return self.complete and self.digest == self.stored

    @property
    def end(self) -> int:
        """The offset behind the block, by its header."""
        return self.offset + (self.header.block_bytes if self.header else 0)

    def fail(self, start: int, end: int, text: str) -> None:
        """Note that bytes start to end - 1 of the segment fail a check."""
        self.failed.append((start, end))
        self.faults.append(text)


def check_records(block: Block, header: BlockHeader, body: bytes, keys: Keys) -> None:
    """Check the records of a body (section 6); fill in the records, or what fails."""
    base, at = block.offset + BLOCK_HEADER.size, 0
    for sequence in range(header.first, header.first + header.count):
        if len(body) - at < FRAME.size:
            block.fail(base + at, base + len(body), f"the body ends before record {sequence}")
            return
        length, stated, check = FRAME.unpack_from(body, at)
        end = at + FRAME.size + length
        if stated != sequence:
            block.fail(base + at, base + len(body), f"record {sequence} says that it is {stated}")
            return
        if end > len(body) or block.sealed and length > MAX_RECORD:
            block.fail(base + at, base + len(body), f"record {sequence} says {length} bytes: beyond the body or the bound")
            return
        data = body[at + FRAME.size : end]
        seed = xxhash.xxh64_intdigest(body[at : at + CHECKED_FRAME_BYTES], keys.salt)
        if xxhash.xxh64_intdigest(data, seed) != check:
            block.fail(base + at, base + end, f"the checksum of record {sequence} is wrong")
        block.records.append(Record(sequence, length, blake3(data).hexdigest()))
        at = end
    if at < len(body):
        block.fail(base + at, base + len(body), f"{len(body) - at} bytes of the body lie behind its last record")


def examine_block(segment: SegmentFile, offset: int, keys: Keys) -> Block:
    """Read what stands at offset and check all of it but its place in the chain."""
    block = Block(offset)
    try:
        header = BlockHeader.parse(segment.read(offset, BLOCK_HEADER.size), keys)
    except Damage as damage:
        block.faults.append(str(damage))
        return block
    block.header = header
    if header.length > MAX_BODY:
        block.too_large = f"the body of the block has {header.length} bytes; the bound is {MAX_BODY}"
        block.faults.append(block.too_large)
        return block
    if block.end > segment.size:
        block.faults.append("the file ends before the block does")
        return block
    block.complete = True
    content = segment.read(offset + BLOCK_HEADER.size, header.length + DIGEST_BYTES)
    body, block.stored = content[: header.length], content[header.length :]
    block.digest = blake3(key=keys.block).update(header.raw).update(body).digest()
    check_records(block, header, body, keys)
    if not block.sealed and not block.faults:
        block.fail(block.end - DIGEST_BYTES, block.end, "the digest of the block is wrong")
    return block


def synced_block_behind(segment: SegmentFile, start: int, end: int, keys: Keys, next_sequence: int) -> int | None:
    """The offset of a block that holds by itself, from start on, and was written when next_sequence was synced.

    Headers that lie about their lengths may ask for the same bytes again and again: where more than HASHES_A_BYTE times the
    bytes that there are would have to be hashed, the header at hand counts as such a block, so that nothing passes for torn.
    """
    left, passed = HASHES_A_BYTE * max(0, end - start), start
    for offset in segment.find_magic(start):
        if offset < passed:
            continue
        try:
            header = BlockHeader.parse(segment.read(offset, BLOCK_HEADER.size), keys)
        except Damage:
            continue
        if header.first < next_sequence or header.length > MAX_BODY or offset + header.block_bytes > segment.size:
            continue
        left -= header.block_bytes
        if left < 0:
            return offset
        block = examine_block(segment, offset, keys)
        if block.sealed and not block.faults:
            if header.durable > next_sequence:
                return offset
            passed = block.end
    return None


def reads_as_torn(segment: SegmentFile, block: Block, content_end: int) -> bool:
    """Rules 1 to 4 of section 8, for bytes that are not damage by what stands before these rules."""
    if block.header is None:
        header_end = block.offset + BLOCK_HEADER.size
        return content_end < header_end or segment.zero_sector_touches(block.offset, header_end, block.offset)
    if not block.complete:
        return True
    if block.sealed:
        return False
    if block.digest.startswith(block.stored.rstrip(b"\0")):
        return True
    return any(segment.zero_sector_touches(start, end, block.offset) for start, end in block.failed)


class Verifier:
    """The walk over a log (section 9), and what it found."""

    def __init__(self, heads: list[Head]) -> None:
        self.heads = heads
        self.open_heads = list(heads)
        self.keys: Keys | None = None
        self.log_id = b""
        self.kind: str | None = None
        self.first_sequence: int | None = None
        self.segments = 0
        self.blocks = 0
        self.cuts = 0
        self.records: list[Record] = []
        self.findings: list[str] = []
        self.torn = ""
        self.index = 0
        self.offset = 0
        self.next_sequence = 0
        self.digest = b""

    @property
    def head(self) -> str | None:
        """The end of what was proven, if a header of a segment was."""
        return str(Head(self.log_id, self.next_sequence, self.digest)) if self.keys else None

    def find(self, text: str) -> None:
        """Report something that is wrong at the place where the walk is."""
        self.findings.append(
            f"segment {self.index:016x}, offset {self.offset}, next sequence {self.next_sequence}: {text}"
        )

    def verify(self, folder: str) -> None:
        """Prove the log in the folder; NoLog if there is none."""
        segments = list_segments(folder)
        reached_end = False
        try:
            for position, (index, path) in enumerate(segments):
                self.index, self.offset = index, 0
                if position and index != segments[position - 1][0] + 1:
                    raise Damage(f"segment {segments[position - 1][0] + 1:016x} is missing")
                if not os.path.isfile(path):
                    raise Damage("what has the name of a segment is no file")
                with SegmentFile(path, index) as segment:
                    self._walk_segment(segment, last=position == len(segments) - 1)
            reached_end = True
        except Damage as damage:
            self.find(str(damage))
        except OSError as error:
            self.find(f"the segment cannot be read: {error.strerror or error}")
        self._judge_heads(reached_end)

    def _walk_segment(self, segment: SegmentFile, last: bool) -> None:
        keys = self._enter_segment(read_segment_header(segment))
        self.segments += 1
        self.offset = SEGMENT_HEADER.size
        while self.offset < segment.size:
            block = examine_block(segment, self.offset, keys)
            if block.header is None or block.faults or self._misplaced(block.header):
                self._judge_end(segment, block, keys, last)
                return
            self._accept(block, block.header)

    def _enter_segment(self, header: SegmentHeader) -> Keys:
        """Check the header of a segment against what was before it."""
        keys = self.keys
        if keys is None:
            keys = Keys.of(header.log_id)
            if self.index == 0 and (header.sequence != 0 or header.digest != keys.genesis):
                raise Damage("segment 0 does not begin with sequence 0 and the genesis")
            self.keys, self.log_id, self.kind = keys, header.log_id, header.kind
            self.first_sequence = self.next_sequence = header.sequence
            self.digest = header.digest
            self._meet_heads()
            return keys
        if header.log_id != self.log_id:
            raise Damage(f"the segment belongs to the log {uuid.UUID(bytes=header.log_id)}")
        if header.kind != self.kind:
            raise Damage(f"the kind of the segment is {header.kind!r}, that of the log is {self.kind!r}")
        if header.sequence != self.next_sequence:
            raise Damage(f"the segment begins with sequence {header.sequence}")
        if header.digest != self.digest:
            raise Damage("the segment does not begin with the digest at which the one before ended")
        return keys

    def _misplaced(self, header: BlockHeader) -> str:
        """Why a block is not the one that follows; empty if it is."""
        if header.first != self.next_sequence:
            return f"the block begins with sequence {header.first}"
        if header.previous != self.digest:
            return "the block does not follow the block before it: another digest"
        return ""

    def _accept(self, block: Block, header: BlockHeader) -> None:
        self.blocks += 1
        self.next_sequence += header.count
        self.digest = block.digest
        self.offset = block.end
        if not header.note:
            self.records += block.records
        elif header.count == 1 and block.records[0].length == CUT_NOTE_BYTES:
            self.cuts += 1
        self._meet_heads()

    def _judge_end(self, segment: SegmentFile, block: Block, keys: Keys, last: bool) -> None:
        """Section 8: what stands where no block follows is nothing, torn, or damage."""
        content_end = segment.content_end(block.offset)
        if content_end == block.offset:
            return
        misplaced = self._misplaced(block.header) if block.header else ""
        text = "; ".join(filter(None, [misplaced, *block.faults[:1]]))
        if not last:
            raise Damage(f"{text} (in a segment that another follows)")
        if misplaced:
            raise Damage(f"{text} (a sound header at the wrong place)")
        if block.too_large:
            raise Damage(text)
        behind = block.end if block.header else block.offset + 1
        synced = synced_block_behind(segment, behind, content_end, keys, self.next_sequence)
        if synced is not None:
            raise Damage(f"{text} (a block at offset {synced} shows that what stood here was synced)")
        if not reads_as_torn(segment, block, content_end):
            raise Damage(text)
        self.torn = f"segment {self.index:016x}, offset {block.offset}: {text}"

    def _meet_heads(self) -> None:
        """Compare the place that was reached with the heads that name it."""
        here = [head for head in self.open_heads if head.sequence == self.next_sequence and head.log_id == self.log_id]
        for head in here:
            self.open_heads.remove(head)
            if head.digest != self.digest:
                self.find(f"the digest is {self.digest.hex()}, that of the head {head} is another")

    def _judge_heads(self, reached_end: bool) -> None:
        """Report the heads that were not met; those behind damage cannot be judged."""
        if self.keys is None or self.first_sequence is None:
            return
        for head in self.open_heads:
            if head.log_id != self.log_id:
                self.find(f"the head {head} belongs to another log than {uuid.UUID(bytes=self.log_id)}")
            elif head.sequence < self.first_sequence:
                self.find(f"the head {head} is before the first segment that is there")
            elif head.sequence < self.next_sequence:
                self.find(f"no block ends at the head {head}")
            elif reached_end:
                self.find(f"the log ends before the head {head}: it was cut")

    def as_json(self) -> dict[str, Any]:
        """The members that expected.json has, and the findings."""
        return {
            "first_sequence": self.first_sequence,
            "segments": self.segments,
            "blocks": self.blocks,
            "kind": self.kind,
            "torn": bool(self.torn),
            "cuts": self.cuts,
            "head": self.head,
            "records": [vars(record) for record in self.records],
            "findings": self.findings,
        }

    def as_lines(self) -> list[str]:
        """The findings and the sum, for people."""
        sum_up = (
            f"records {len(self.records)}, blocks {self.blocks}, segments {self.segments}, head {self.head or 'unknown'}"
        )
        return [*self.findings, sum_up + (f" torn at {self.torn}" if self.torn else "")]


def list_segments(folder: str) -> list[tuple[int, str]]:
    """Index and path of what has the name of a segment, in order; NoLog if no file is among it."""
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise NoLog(f"{folder!r} cannot be listed: {error.strerror or error}") from error
    except ValueError as error:
        raise NoLog(f"{folder!r} is no name of a folder: {error}") from error
    matches = [match for match in map(SEGMENT_NAME.fullmatch, names) if match]
    segments = sorted((int(match[1], 16), os.path.join(folder, match[0])) for match in matches)
    if not any(os.path.isfile(path) for _, path in segments):
        raise NoLog(f"no log in {folder!r}: no segment is there")
    return segments


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line; argparse leaves with code 2 if it is wrong."""

    def head(text: str) -> Head:
        try:
            return Head.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is no head: {error}") from error

    parser = argparse.ArgumentParser(prog="log_verify.py", description="Prove the log in a folder.")
    parser.add_argument("--head", metavar="HEAD", type=head, action="append", default=[], help="a head that was kept")
    parser.add_argument("--json", action="store_true", help="write one JSON object")
    parser.add_argument("folder", metavar="FOLDER", help="the folder with the segments")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit code."""
    options = parse_arguments(arguments)
    verifier = Verifier(options.head)
    try:
        verifier.verify(options.folder)
    except NoLog as reason:
        print(f"log_verify.py: {reason}", file=sys.stderr)
        return 2
    print(json.dumps(verifier.as_json(), indent=2) if options.json else "\n".join(verifier.as_lines()))
    return 1 if verifier.findings else 0


if __name__ == "__main__":
    sys.exit(main())

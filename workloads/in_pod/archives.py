"""Finds the text in a file: compressed or not, in a tar or not. A damaged, truncated or non-text file is an error."""

from __future__ import annotations

import bz2
import ctypes
import lzma
import re
import tarfile
import zlib
from typing import BinaryIO, Callable, Iterator, Protocol

from progress import BLOCK, DataError, blocks

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
HEAD = 512
TAR_BUFFER = 1 << 16
# A tar ends with zeros. If there are more zeros than this, a part of the file was never written.
MOST_ZEROS = 1 << 20
NOT_TEXT = {
    "a zip archive": rb"PK(\x03\x04|\x05\x06)",
    "a 7z archive": rb"7z\xbc\xaf",
    "a rar archive": rb"Rar!",
    "a PDF document": rb"%PDF-",
    "UTF-16 text": rb"\xff\xfe|\xfe\xff",
    "an HTML page": rb"(?i)(\xef\xbb\xbf)?\s*<(!doctype html|html)",
}


class Decompressor(Protocol):
    """What bz2 and lzma offer for one compressed stream."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class Stream:
    """A file-like object over blocks of bytes. tarfile reads from it. `peek` returns the next bytes and keeps them."""

    def __init__(self, source: Iterator[bytes]) -> None:
        self.source, self.block, self.position = source, b"", 0

    def peek(self, count: int) -> bytes:
        while len(self.block) - self.position < count and (more := next(self.source, b"")):
            self.block, self.position = self.block[self.position :] + more, 0
        return self.block[self.position : self.position + count]

    def read(self, count: int) -> bytes:
        if self.position == len(self.block):
            self.block, self.position = next(self.source, b""), 0
        data = self.block[self.position : self.position + count]
        self.position += len(data)
        return data


class Gzip:
    """zlib with the interface of the bz2 and lzma decompressors. zlib checks the CRC and the length."""

    def __init__(self) -> None:
        self.inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self.inner.eof

    @property
    def needs_input(self) -> bool:
        return not self.inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self.inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self.inner.decompress(self.inner.unconsumed_tail + data, max_length)


class ZstdBuffer(ctypes.Structure):
    """ZSTD_inBuffer and ZSTD_outBuffer: an address, a size and a position."""

    _fields_ = [("address", ctypes.c_void_p), ("size", ctypes.c_size_t), ("position", ctypes.c_size_t)]


class Zstd:
    """libzstd, which Debian and Ubuntu images contain for apt. Python has no zstd module before version 3.14."""

    def __init__(self) -> None:
        try:
            library = ctypes.CDLL("libzstd.so.1")
        except OSError as error:
            raise DataError(f"this image has no libzstd.so.1 for zst files: use gz, bz2 or xz ({error})") from error
        library.ZSTD_createDStream.restype = ctypes.c_void_p
        library.ZSTD_decompressStream.restype = ctypes.c_size_t
        library.ZSTD_getErrorName.restype = ctypes.c_char_p
        self.library = library
        self.stream = ctypes.c_void_p(library.ZSTD_createDStream())
        window_log_max, largest = 100, 31  # as `zstd --long=31` writes
        library.ZSTD_DCtx_setParameter(self.stream, window_log_max, largest)
        self.pending, self.eof, self.needs_input = b"", False, True

    def __del__(self) -> None:
        if hasattr(self, "stream"):
            self.library.ZSTD_freeDStream(self.stream)

    @property
    def unused_data(self) -> bytes:
        return self.pending

    def decompress(self, data: bytes, max_length: int) -> bytes:
        given = self.pending + data
        memory = ctypes.create_string_buffer(max_length)
        source = ZstdBuffer(ctypes.cast(ctypes.c_char_p(given), ctypes.c_void_p), len(given), 0)
        target = ZstdBuffer(ctypes.cast(memory, ctypes.c_void_p), max_length, 0)
        result = ctypes.c_size_t(
            self.library.ZSTD_decompressStream(self.stream, ctypes.byref(target), ctypes.byref(source))
        )
        if self.library.ZSTD_isError(result):
            raise ValueError(self.library.ZSTD_getErrorName(result).decode())
        self.pending, self.eof = given[source.position :], result.value == 0
        self.needs_input = not self.pending and target.position < max_length
        return ctypes.string_at(memory, target.position)


FORMATS: dict[str, tuple[bytes, Callable[[], Decompressor]]] = {
    "gzip": (rb"\x1f\x8b", Gzip),
    "bzip2": (rb"BZh[1-9]", bz2.BZ2Decompressor),
    "xz": (rb"\xfd7zXZ\x00", lzma.LZMADecompressor),
    # The second form is a skippable frame; pzstd begins with one.
    "zstd": (rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", Zstd),
}


def decompress(source: Stream, kind: str, new: Callable[[], Decompressor], name: str) -> Iterator[bytes]:
    """The content of all compressed streams in the file. pbzip2, pigz, bgzip and pzstd write many streams."""
    data = b""
    while data or source.peek(1):
        decompressor = new()
        while not decompressor.eof:
            ended = False
            if not data and decompressor.needs_input:
                data = source.read(BLOCK)
                ended = not data
            try:
                block = decompressor.decompress(data, BLOCK)
            except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
                raise DataError(f"{name}: the {kind} data is damaged: {error}") from error
            data = b""
            if block:
                yield block
            elif ended and not decompressor.eof:
                raise DataError(f"{name}: the {kind} data is cut off")
        # Zeros may fill the space between streams.
        data = decompressor.unused_data.lstrip(b"\0")
        while not data and (block := source.read(BLOCK)):
            data = block.lstrip(b"\0")


def is_tar(head: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(head, tarfile.ENCODING, "surrogateescape")
    except tarfile.HeaderError as error:
        return isinstance(error, tarfile.EOFHeaderError)  # type: ignore[attr-defined]
    return True


def tar_members(stream: Stream, name: str) -> Iterator[tuple[str, Stream]]:
    """Each file in the archive, or in several archives one after the other."""
    last, ended, zeros = "the beginning", False, 0

    class StrictHeader(tarfile.TarInfo):
        """An error where tarfile would just stop: at a damaged header, and at the end of a truncated file."""

        @classmethod
        def fromtarfile(cls, archive: tarfile.TarFile) -> StrictHeader:
            nonlocal ended, zeros
            try:
                return super().fromtarfile(archive)
            except tarfile.HeaderError as error:
                at_the_end = isinstance(error, tarfile.EmptyHeaderError)  # type: ignore[attr-defined]
                if isinstance(error, tarfile.EOFHeaderError):  # type: ignore[attr-defined]
                    ended, zeros = True, zeros + tarfile.BLOCKSIZE
                    if zeros > MOST_ZEROS:
                        what = "more than 1 MiB of zeros follows"
                        raise DataError(f"{name}: the tar is damaged after {last}: {what}") from error
                elif not (at_the_end and ended):
                    what = "is cut off" if at_the_end else f"is damaged ({error})"
                    raise DataError(f"{name}: the tar {what} after {last}") from error
                raise

    try:
        # ignore_zeros: after the end of an archive, read the next one. `cat a.tar b.tar` makes such a file.
        with tarfile.open(  # type: ignore[call-overload]
            fileobj=stream, mode="r|", bufsize=TAR_BUFFER, tarinfo=StrictHeader, ignore_zeros=True
        ) as archive:
            for member in archive:
                last, ended, zeros = member.name, False, 0
                if not member.isfile():
                    if not member.isdir():
                        print(f"{name}: {member.name} is skipped: it is not a regular file", flush=True)
                    continue
                content = archive.extractfile(member)
                assert content is not None
                yield f"{name}: {member.name}", Stream(member_blocks(content, f"{name}: the tar", member.name))
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise DataError(f"{name}: the tar is damaged after {last}: {error}") from error


def member_blocks(content: BinaryIO, tar: str, member: str) -> Iterator[bytes]:
    try:
        yield from blocks(content)
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise DataError(f"{tar} is cut off in {member}") from error


def compression(head: bytes) -> tuple[str, Callable[[], Decompressor]] | None:
    """The name of the compression and a function that creates its decompressor; None if the file is not compressed."""
    return next(((kind, new) for kind, (magic, new) in FORMATS.items() if re.match(magic, head)), None)


def is_plain(head: bytes) -> bool:
    """Whether a file that begins with these bytes is neither compressed nor a tar."""
    return not compression(head) and not is_tar(head)


def check_head(head: bytes, name: str) -> None:
    """Raise if the file begins like something that is not text in UTF-8."""
    for what, magic in NOT_TEXT.items():
        if re.match(magic, head):
            raise DataError(f"{name} is {what}: use UTF-8 text, plain or in a tar, gz, bz2, xz or zst file")


def check_block(block: bytes, name: str) -> None:
    if b"\0" in block:
        raise DataError(f"{name} contains NUL bytes, so it is not UTF-8 text")


def append_text(stream: Stream, name: str, out: BinaryIO) -> None:
    """Append all text in the stream to `out`. Each file in it ends with a newline and has no byte order mark."""
    head = stream.peek(HEAD)
    if packed := compression(head):
        kind, new = packed
        return append_text(Stream(decompress(stream, kind, new, name)), name, out)
    if is_tar(head):
        for member, content in tar_members(stream, name):
            append_text(content, member, out)
        return None
    check_head(head, name)
    if head.startswith(BYTE_ORDER_MARK):
        stream.read(len(BYTE_ORDER_MARK))
    last = b"\n"
    while block := stream.read(BLOCK):
        check_block(block, name)
        out.write(block)
        last = block[-1:]
    if last != b"\n":
        out.write(b"\n")
    return None

"""archives.py: all the text in a file is found, or the file and the damage are named."""

from __future__ import annotations

import bz2
import ctypes
import gzip
import io
import lzma
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import archives
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from progress import BLOCK, DataError

from tests.in_pod.samples import make_tar


def zstd(content: bytes) -> bytes:
    """One zstd frame, by the zstd command."""
    if not shutil.which("zstd"):
        pytest.skip("no zstd command")
    return subprocess.run(["zstd", "-q", "-c"], input=content, check=True, capture_output=True).stdout


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd,
}
compressions = pytest.mark.parametrize("kind", COMPRESSIONS)
# Random digits: each compression needs many blocks of output for them, and none can shorten them to a few bytes.
LINES = b"".join(b"%d\t%d\n" % (n % 2, n * 7919 % 999983) for n in range(100_000))


def read(content: bytes, block: int = 1 << 16, name: str = "source") -> bytes:
    """The text in a file with this content."""
    source, out = io.BytesIO(content), io.BytesIO()
    archives.append_text(archives.Stream(iter(lambda: source.read(block), b"")), name, out)
    return out.getvalue()


@compressions
def test_all_streams_of_a_compressed_file_are_read(kind: str) -> None:
    """pigz, pbzip2, bgzip and pzstd write several streams into one file."""
    compress = COMPRESSIONS[kind]
    assert read(compress(LINES)) == LINES
    assert read(compress(LINES) + compress(LINES)) == LINES + LINES
    assert read(compress(b"")) == b""
    for block in (1, 7, 1 << 16):
        assert read(compress(b"1\n2\n") + compress(b"") + compress(b"3\n"), block) == b"1\n2\n3\n"
    assert read(compress(b"1\n") + bytes(8) + compress(b"2\n") + bytes(4)) == b"1\n2\n", "zeros between streams"


@compressions
def test_a_cut_compressed_file_is_an_error_wherever_it_is_cut(kind: str) -> None:
    content = COMPRESSIONS[kind](b"1\ta\n2\tb\n") + COMPRESSIONS[kind](b"3\tc\n")
    whole = {0, len(COMPRESSIONS[kind](b"1\ta\n2\tb\n"))}
    for length in range(10, len(content)):
        if length not in whole:
            with pytest.raises(DataError, match=f"source: the {kind} data is (cut off|damaged)"):
                read(content[:length])


@compressions
def test_a_damaged_compressed_file_is_an_error(kind: str) -> None:
    content = COMPRESSIONS[kind](LINES)
    for position in (len(content) // 3, len(content) // 2, len(content) - 5):
        damaged = bytearray(content)
        damaged[position] ^= 0x55
        with pytest.raises(DataError, match=f"source: the {kind} data is (cut off|damaged)"):
            read(bytes(damaged))
    with pytest.raises(DataError, match=f"source: the {kind} data is damaged"):
        read(content + b"and something else that is not a stream")


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("kind", ["", *COMPRESSIONS])
def test_the_files_of_a_tar_are_read_in_order(kind: str, form: int, capsys: pytest.CaptureFixture[str]) -> None:
    archive = make_tar({"folder/a": b"1\n2", "b": b"", "c" * 99: b"\xef\xbb\xbf3\n4\n"}, form)
    assert read(COMPRESSIONS[kind](archive) if kind else archive) == b"1\n2\n3\n4\n"
    assert capsys.readouterr().out == "source: link is skipped: it is not a regular file\n"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (make_tar({"a.gz": gzip.compress(b"1\n"), "b.xz": lzma.compress(b"2\n"), "c": b"3"}), b"1\n2\n3\n"),
        (make_tar({"a": b"1\n"}) + make_tar({"b": b"2\n"}), b"1\n2\n"),
        (b"\xef\xbb\xbf1\ta\rb\r\n2\tc\r\n", b"1\ta\rb\r\n2\tc\r\n"),
    ],
    ids=["compressed files in a tar", "several tars", "a byte order mark and carriage returns"],
)
def test_the_text_is_read(content: bytes, text: bytes) -> None:
    assert read(content) == text


@given(
    files=st.lists(st.binary(max_size=2000).map(lambda b: b.replace(b"\0", b"x")), min_size=1, max_size=5),
    cut=st.floats(0, 1, exclude_max=True),
)
@settings(max_examples=300, deadline=None)
def test_a_tar_cut_anywhere_is_an_error(files: list[bytes], cut: float) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for number, content in enumerate(files):
            member = tarfile.TarInfo(f"member-{number}")
            member.size = len(content)
            # A first byte that makes the member neither compressed nor something else that is known.
            content = b"." + content[1:] if content else content
            tar.addfile(member, io.BytesIO(content))
        end = tar.offset
    length = 512 + int(cut * (end - 512))
    with pytest.raises(DataError, match=r"source: the tar is (cut off|damaged)"):
        read(buffer.getvalue()[:length])


def test_the_member_before_a_damaged_header_is_named() -> None:
    archive = bytearray(make_tar({"a": b"1\n" * 100, "b": b"2\n" * 100}))
    header = archive.index(b"b\0")
    archive[header + 100] ^= 0x55
    with pytest.raises(DataError, match=r"source: the tar is damaged \(bad checksum\) after a"):
        read(bytes(archive))
    with pytest.raises(DataError, match="source: the tar is cut off after a"):
        read(bytes(archive[:header]))


def test_a_tar_whose_end_was_never_written_is_an_error() -> None:
    """A download into a file of the final size leaves zeros if it is interrupted."""
    archive = make_tar({"a": b"1\n", "b": b"2\n"})
    header = archive.index(b"b\0")
    with pytest.raises(DataError, match="source: the tar is damaged after a: more than 1 MiB of zeros follows"):
        read(archive[:header] + bytes(2 << 20))
    assert read(archive + bytes(512 << 10)) == b"1\n2\n", "tar --blocking-factor=1024"


def test_a_wrong_gzip_checksum_of_a_tar_is_an_error() -> None:
    archive = bytearray(gzip.compress(make_tar({"a": b"1\n"})))
    archive[-6] ^= 0x55
    with pytest.raises(DataError, match="source: the gzip data is damaged"):
        read(bytes(archive))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"PK\x03\x04 a zip", "is a zip archive"),
        ("1\ta\n".encode("utf-16"), "is UTF-16 text"),
        ("1\ta\n".encode("utf-16-le"), "contains NUL bytes"),
        (b"1\ta\n" * 100_000 + b"\0", "contains NUL bytes"),
        (b"\n <!DOCTYPE html><html></html>", "is an HTML page"),
        (b"\xef\xbb\xbf<HTML>", "is an HTML page"),
        (b"%PDF-1.7", "is a PDF document"),
        (b"7z\xbc\xaf\x27\x1c", "is a 7z archive"),
        (b"Rar!\x1a\x07", "is a rar archive"),
    ],
)
def test_what_is_not_text_is_rejected_by_name(content: bytes, what: str) -> None:
    with pytest.raises(DataError, match=f"^source {what}"):
        read(content)
    with pytest.raises(DataError, match=f"^source: folder/member {what}"):
        read(gzip.compress(make_tar({"good": b"1\n", "folder/member": content})))


def test_an_image_without_libzstd_gets_alternatives(monkeypatch: pytest.MonkeyPatch) -> None:
    content = zstd(b"1\n")

    def missing(name: str) -> None:
        raise OSError(f"{name}: no such file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(DataError, match=r"has no libzstd\.so\.1 for zst files: use gz, bz2 or xz"):
        read(content)


def test_little_memory_is_needed_for_a_file_that_shrinks_a_lot(tmp_path: Path) -> None:
    """A block of compressed input may stand for gigabytes; the output comes in blocks, too."""
    for compress in (gzip.compress, bz2.compress, lzma.compress, zstd):
        packed = compress(b"a" * 50_000_000)
        source = archives.Stream(iter([packed]))
        kind, new = archives.compression(packed) or ("", archives.Gzip)
        assert max(map(len, archives.decompress(source, kind, new, "source"))) <= BLOCK

"""Downloads a file over https. An interrupted download resumes; an incomplete one is an error."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract import without_credentials
from files import TRANSIENT, retry_transient
from progress import DataError, Progress, blocks

TRIES = 6  # in a row without a new byte
FIRST_DELAY_SECONDS = 1.0
TIMEOUT_SECONDS = 60.0
TEMPORARY = (408, 425, 429)
INTERRUPTIONS = (
    urllib.error.URLError,
    http.client.HTTPException,
    socket.timeout,
    TimeoutError,
    ConnectionError,
    ssl.SSLError,
)


class InterruptedDownloadError(Exception):
    """The download may succeed if it is repeated."""


class HttpsOnly(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, request: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if not newurl.startswith("https://"):
            raise DataError(f"it redirects to {without_credentials(newurl)}, which is not an https address")
        return super().redirect_request(request, fp, code, msg, headers, newurl)


def hide(message: str, url: str) -> str:
    """The message without the query of the URL and of a redirect's target, which can be credentials."""
    query = urllib.parse.urlsplit(url).query
    message = message.replace(query, "...") if query else message
    return re.sub(r"(\w+://[^\s?#']*)[?#][^\s']*", r"\1", message)


@dataclass
class Partial:
    """What is known of a download that may be incomplete."""

    path: Path
    validator: str = ""  # ETag or Last-Modified: identifies this version of the file
    total: int | None = None

    @property
    def received(self) -> int:
        return retry_transient(lambda: self.path.stat().st_size if self.path.exists() else 0)


def download(url: str, path: Path, may_lack_length: bool) -> None:
    """Write the file at the URL to the path.

    If the server sends no length, only a checksum shows that the download is complete. `may_lack_length` allows this.
    """
    shown = without_credentials(url)
    partial, tries, most, delay = Partial(path), 0, 0, FIRST_DELAY_SECONDS
    while True:
        try:
            return receive(url, partial, may_lack_length)
        except (DataError, UnicodeError) as error:
            raise DataError(f"{shown} cannot be downloaded: {hide(str(error), url)}") from None
        except InterruptedDownloadError as error:
            tries, delay = (tries + 1, 2 * delay) if partial.received <= most else (1, FIRST_DELAY_SECONDS)
            most = max(most, partial.received)
            if tries >= TRIES:
                raise DataError(f"{shown} cannot be downloaded: {hide(str(error), url)} ({tries} tries)") from None
            print(f"download: {shown}: {hide(str(error), url)}; next try in {delay:.0f} s", flush=True)
            time.sleep(delay)


def receive(url: str, partial: Partial, may_lack_length: bool) -> None:
    """Make one request. It asks only for the missing part if the server can send parts."""
    request = urllib.request.Request(url)
    begin = partial.received if partial.validator else 0
    if begin:
        request.add_header("Range", f"bytes={begin}-")
        request.add_header("If-Range", partial.validator)
    try:
        with urllib.request.build_opener(HttpsOnly).open(request, timeout=TIMEOUT_SECONDS) as response:
            begin = check_response(response, begin, partial, may_lack_length)
            progress = Progress(f"download {partial.path.name}", partial.total or 0)
            progress.add(begin)
            with partial.path.open("r+b" if begin else "wb") as out:
                out.seek(begin)
                out.truncate()
                for block in blocks(response):
                    out.write(block)
                    progress.add(len(block))
    except urllib.error.HTTPError as error:
        why = " ".join(str(error).split())
        if begin and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            partial.validator = ""
        elif error.code not in TEMPORARY and error.code < http.client.INTERNAL_SERVER_ERROR:
            raise DataError(why) from error
        raise InterruptedDownloadError(why) from error
    except INTERRUPTIONS as error:
        if isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError):
            raise DataError(str(error)) from error
        raise InterruptedDownloadError(" ".join(str(error).split()) or type(error).__name__) from error
    except OSError as error:
        if error.errno not in TRANSIENT:
            raise
        # Nobody knows which of the last writes are on the volume.
        partial.validator = ""
        raise InterruptedDownloadError(str(error)) from error
    if partial.total is not None and partial.received != partial.total:
        raise InterruptedDownloadError(f"it ended after {partial.received} of {partial.total} bytes")


def check_response(response: Any, begin: int, partial: Partial, may_lack_length: bool) -> int:
    """The position in the file where the response begins. Sets the total size and the version in `partial`."""
    if response.status == http.client.PARTIAL_CONTENT and begin:
        sent = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if not sent or int(sent[1]) != begin or partial.total not in (None, int(sent[2])):
            partial.validator = ""
            raise InterruptedDownloadError("the server did not send the part that was asked for")
        partial.total = int(sent[2])
        return begin
    if response.status != http.client.OK:
        raise DataError(f"the server answered with HTTP {response.status} instead of 200")
    length = response.headers.get("Content-Length")
    if length is not None and not re.fullmatch(r"[0-9]+", length.strip()):
        raise DataError(f"the server sent the Content-Length {length!r}, which is not a number")
    if length is None and not response.chunked and not may_lack_length:
        raise DataError("the server sent no Content-Length, so nobody can see whether it is complete: set data.sha256")
    etag = response.headers.get("ETag", "")
    partial.validator = etag if etag.startswith('"') else response.headers.get("Last-Modified", "")
    # The length of a chunked response is not known before its end.
    partial.total = int(length) if length is not None and not response.chunked else None
    return 0

"""Short texts for values, in the report, the messages and the log."""

from __future__ import annotations

import math
import re
import unicodedata

LONGEST_TEXT = 300
MOST_NUMBERS = 24  # of one checkpoint


def plain(value: object) -> str:
    """A value as short text, without control characters, and without the user name and query string of a URL."""
    if isinstance(value, (list, tuple)):
        value = ", ".join(map(str, value[:20])) + (f", and {len(value) - 20} more" if len(value) > 20 else "")
    text = re.sub(r"([a-zA-Z][a-zA-Z0-9+.-]*://)(?:[^\s/?#]*@)?([^\s?#]*)(?:[?#]\S*)?", r"\1\2", str(value))
    text = "".join("\ufffd" if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Co", "Cn") else each for each in text)
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "\u2026"


def number_text(value: float) -> str:
    """A number with as many digits as a reader needs."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if 1 <= abs(value) < 1e9:
        return f"{value:,.{max(0, 3 - int(math.log10(abs(value))))}f}"
    return f"{value:.4g}"


def size_text(size: float) -> str:
    """A size with a suitable unit."""
    for unit in ("bytes", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"


def duration_text(seconds: float) -> str:
    """A duration in its two largest units."""
    whole = max(0, round(seconds))
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"

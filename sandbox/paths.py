"""The checkout that this sandbox belongs to."""

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent

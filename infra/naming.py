"""Logical names of the resources inside a component."""


def prefix(name: str, default: str) -> str:
    """What the names of a component's children start with: nothing in the instance that every stack has."""
    return "" if name == default else f"{name}-"

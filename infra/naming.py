"""Names of the resources inside a component."""


def prefix(name: str, default: str) -> str:
    """The prefix for the names of a component's children. It is empty for the instance that every stack has."""
    return "" if name == default else f"{name}-"

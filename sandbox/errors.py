"""The one exception that the command line shows as a sentence."""


class SandboxError(Exception):
    """Something the person can act on: what, why, what to do, in one line."""

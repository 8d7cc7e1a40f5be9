"""The exception that the command line prints as one message without a traceback."""


class SandboxError(Exception):
    """A problem that the user can solve. The message says what failed, why, and what to do."""

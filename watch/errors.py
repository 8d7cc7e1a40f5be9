"""The one kind of error that the view reports and stops at."""


class WatchError(Exception):
    """One line for the user: what is missing and what to do."""

"""The error that ends the view."""


class WatchError(Exception):
    """One line for the user: what is missing and what to do."""

"""What moto lacks."""


def apply() -> None:
    pass

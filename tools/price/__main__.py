"""`python -m tools.price STACK` prints what the stack costs, as a table."""

import sys

from settings.stack_file import StackFileError, stack_settings
from tools.price.cost import estimate


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("Give the name of one stack: make price STACK=dev")
    try:
        print(estimate(stack_settings(sys.argv[1])))
    except StackFileError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()

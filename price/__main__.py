"""`python -m price STACK`: what the stack costs, as a table."""

import sys

from price.cost import PriceError, estimate, stack_settings


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("Name one stack: make price STACK=dev")
    try:
        print(estimate(stack_settings(sys.argv[1])))
    except PriceError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()

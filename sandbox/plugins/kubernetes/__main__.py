"""The executable that the engine starts."""

import sys

from sandbox.plugins.kubernetes.provider import Provider
from sandbox.plugins.servicer import serve

provider = Provider(next((argument for argument in sys.argv[1:] if not argument.startswith("-")), ""))
serve(provider, provider.cancelled.set)

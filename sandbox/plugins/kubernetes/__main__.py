"""The executable that the engine starts."""

import sys

from sandbox.plugins.kubernetes.provider import Provider
from sandbox.plugins.servicer import serve

provider = Provider(sys.argv[-1] if len(sys.argv) > 1 else "")
serve(provider, provider.cancelled.set)

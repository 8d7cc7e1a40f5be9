"""The executable that the engine starts."""

import gc
import os

# The imports take a quarter less time without it.
gc.disable()
# The user's own AWS settings are not read: botocore looks at them when it is imported.
for name in [each for each in os.environ if each.startswith("AWS_")]:
    del os.environ[name]
os.environ["AWS_CONFIG_FILE"] = os.environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull

from sandbox.plugins.aws.provider import Provider  # noqa: E402
from sandbox.plugins.servicer import serve  # noqa: E402

gc.freeze()
gc.enable()
provider = Provider()
serve(provider, provider.cancel)

"""Patches that save a fifth of the CPU time: moto repeats the same work for each request."""

import functools

from moto import backends
from moto.core import responses
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.core.utils import method_names_from_class
from moto.iam import models as iam


def _account_of(access_key: str) -> str:
    """The account of an access key. moto would create IAM, with the 1600 policies of AWS, in every partition."""
    for account, partitions in list(iam.iam_backends.items()):
        if any(access_key in backend.access_keys for backend in list(partitions.values())):
            return str(account)
    return DEFAULT_ACCOUNT_ID


def apply() -> None:
    # This one looks at every file in the folder of moto.
    modules = tuple(backends.list_of_moto_modules())
    backends.list_of_moto_modules = lambda: modules
    # This one looks at every attribute of a class.
    vars(responses)["method_names_from_class"] = functools.cache(method_names_from_class)
    iam.get_account_id_from = _account_of

"""SSM patch: read only the parameters of the requested page. moto reads all of them, which takes seconds per page."""

from typing import Any

from moto.ssm.models import Parameter, SimpleSystemManagerBackend

_get_all = SimpleSystemManagerBackend.get_parameters_by_path


def _get_parameters_by_path(
    self: SimpleSystemManagerBackend,
    path: str,
    recursive: bool,
    filters: list[dict[str, Any]] | None = None,
    next_token: str | None = None,
    max_results: int = 10,
) -> tuple[list[Parameter], str | None]:
    start = int(next_token or 0)
    names = list(self._parameters.get_keys_beginning_with(path.rstrip("/") + "/", recursive))
    page = names[start : start + max_results]
    if filters or len(page) < max_results:
        return _get_all(self, path, recursive, filters, next_token, max_results)
    following = str(start + max_results) if len(names) > start + max_results else None
    return [parameter for name in page if (parameter := self.get_parameter(name))], following


def apply() -> None:
    SimpleSystemManagerBackend.get_parameters_by_path = _get_parameters_by_path  # type: ignore[method-assign]

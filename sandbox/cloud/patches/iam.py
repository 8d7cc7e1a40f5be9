"""IAM patches: client IDs of an OpenID Connect provider, and permissions boundaries that must exist."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from moto.core.responses import ActionResult, EmptyResult
from moto.iam.exceptions import NotFoundException
from moto.iam.responses import IamResponse


def _clients(self: IamResponse) -> list[str]:
    provider = self.backend.get_open_id_connect_provider(self._get_param("OpenIDConnectProviderArn"))
    return provider.client_id_list


def _add_client_id(self: IamResponse) -> ActionResult:
    clients, client = _clients(self), self._get_param("ClientID")
    if client not in clients:
        clients.append(client)
    return EmptyResult()


def _remove_client_id(self: IamResponse) -> ActionResult:
    clients, client = _clients(self), self._get_param("ClientID")
    if client in clients:
        clients.remove(client)
    return EmptyResult()


def _with_existing_boundary(answer: Callable[[IamResponse], Any]) -> Callable[[IamResponse], Any]:
    @wraps(answer)
    def checked(self: IamResponse) -> Any:
        boundary = self._get_param("PermissionsBoundary")
        if boundary and boundary not in self.backend.managed_policies:
            raise NotFoundException(f"Scope ARN: {boundary} does not exist or is not attachable.")
        return answer(self)

    return checked


def apply() -> None:
    for name in ("create_role", "put_role_permissions_boundary"):
        setattr(IamResponse, name, _with_existing_boundary(getattr(IamResponse, name)))
    IamResponse.add_client_id_to_open_id_connect_provider = _add_client_id  # type: ignore[attr-defined]
    IamResponse.remove_client_id_from_open_id_connect_provider = _remove_client_id  # type: ignore[attr-defined]

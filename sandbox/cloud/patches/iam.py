"""IAM patch: add and remove client IDs of an OpenID Connect provider."""

from moto.core.responses import ActionResult, EmptyResult
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


def apply() -> None:
    IamResponse.add_client_id_to_open_id_connect_provider = _add_client_id  # type: ignore[attr-defined]
    IamResponse.remove_client_id_from_open_id_connect_provider = _remove_client_id  # type: ignore[attr-defined]

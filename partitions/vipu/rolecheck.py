"""io: certificate roles on gRPC servers of the secure mode.

The check wraps every method of every service of a port, so none can be forgotten. The health
service is exempt: a probe needs a certificate of the CA but no role.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health

from partitions.vipu.certificates import role_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection

    from partitions.vipu.certificates import Role

_ALWAYS: Final = f"/{health.SERVICE_NAME}/"
_KINDS: Final = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class RoleCheck(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Refuses certificates of other roles with PERMISSION_DENIED; for threaded servers."""

    def __init__(self, roles: Collection[Role]) -> None:
        self._roles = roles

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Wrap the handler of one call."""
        handler = continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith(_ALWAYS):
            return handler
        return _wrapped(handler, self._checked)

    def _checked(self, inner: Callable[..., Any], request: Any, context: Any) -> Any:
        if problem := _problem(context, self._roles):
            context.abort(grpc.StatusCode.PERMISSION_DENIED, problem)
        return inner(request, context)


class AioRoleCheck(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # as above
    """The same for the methods of an asyncio server."""

    def __init__(self, roles: Collection[Role]) -> None:
        self._roles = roles

    async def intercept_service(
        self,
        continuation: Callable[[Any], Awaitable[Any]],
        handler_call_details: Any,
    ) -> Any:
        """Wrap the handler of one call."""
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith(_ALWAYS):
            return handler
        is_stream = handler.response_streaming
        return _wrapped(handler, self._checked_stream if is_stream else self._checked)

    async def _checked_stream(
        self, inner: Callable[..., Any], request: Any, context: Any
    ) -> AsyncIterator[Any]:
        if problem := _problem(context, self._roles):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, problem)
        async for answer in inner(request, context):
            yield answer

    async def _checked(self, inner: Callable[..., Any], request: Any, context: Any) -> Any:
        if problem := _problem(context, self._roles):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, problem)
        return await inner(request, context)


def _problem(context: Any, roles: Collection[Role]) -> str:
    """Return why a caller is refused; empty if the caller is not."""
    texts = context.auth_context().get("x509_pem_cert") or (b"",)
    role = role_of(texts[0])
    if role in roles:
        return ""
    wanted = " or ".join(roles)
    folders = " or ".join(f"DIR/{each}" for each in roles)
    return (
        f"this needs a certificate of the role {wanted}; yours is of {role or 'no role'}: use the "
        f"certificate in {folders} of vipu-server --tls-init DIR"
    )


def _wrapped(handler: Any, check: Callable[..., Any]) -> Any:
    kind = next(each for each in _KINDS if getattr(handler, each) is not None)
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    return make(
        partial(check, getattr(handler, kind)),
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )

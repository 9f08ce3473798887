"""Header fields of every response, and limits of a request body.

Guarantee: every response, also of an error, has FIELDS, which forbid a browser to run, show or send anything of other
sites. A body is read up to MOST_BODY bytes and for BODY_SECONDS. A request with Content-Length and Transfer-Encoding,
which a proxy in front of the page may end elsewhere than the page does, gets 400, and its connection is closed.
"""

import asyncio

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BODY = 65_536
"""Bytes of a body: requests contain labels, names and a password, no mail."""
BODY_SECONDS = 20.0
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self';"
    " frame-ancestors 'none'; base-uri 'none'"
)
FIELDS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


AMBIGUOUS = {b"content-length", b"transfer-encoding"}
"""Two lengths of a body; RFC 9112 section 6.1 allows to reject such a request, and wants its connection closed."""


class Fields:
    """Adds the fields to every response, and rejects ambiguous requests."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(FIELDS)
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif {name for name, _ in scope["headers"]} >= AMBIGUOUS:
            text = "a request has Content-Length or Transfer-Encoding, not both"
            await PlainTextResponse(text, 400, {"Connection": "close"})(scope, receive, sending)
        else:
            await self._app(scope, receive, sending)


async def body_of(request: Request) -> bytes:
    """The body of a request. Raises HTTPException if it is too large or too slow."""
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal() or int(declared[:20]) > MOST_BODY:
        raise HTTPException(413, f"more than {MOST_BODY} bytes")
    content = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for block in request.stream():
                content += block
                if len(content) > MOST_BODY:
                    raise HTTPException(413, f"more than {MOST_BODY} bytes")
    except (TimeoutError, ClientDisconnect):
        raise HTTPException(408, "the request was incomplete when the time was up") from None
    return bytes(content)


def kind_of(request: Request) -> str:
    """The media type of the body."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()

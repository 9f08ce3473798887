"""The JSON API: the functions of the pages for programs, with name and password of an account (HTTP Basic).

Guarantee: another site cannot use the password that a browser remembers: requests that a browser sends for another site
are rejected, cookies are ignored, and a body must be application/json, which no form can send.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from spamfilter.errors import SpamfilterError
from spamfilter.reports import rendering
from spamfilter.web.accounts import Account
from spamfilter.web.api.description import description
from spamfilter.web.api.operations import OPERATIONS, Call, Operation
from spamfilter.web.message_views import Input, sentence_of, status_of
from spamfilter.web.site import Site
from spamfilter.web.site.limits import body_of, kind_of
from spamfilter.web.site.visitors import TooOften, is_from_another_site

JSON = "application/json"
CHALLENGE = {"WWW-Authenticate": 'Basic realm="spamfilter", charset="UTF-8"'}


def routes(site: Site) -> list[Route]:
    """The routes of all operations and of the OpenAPI description."""
    paths: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = operation
    found = [Route(path, partial(_answer, site, by_method), methods=[*by_method]) for path, by_method in paths.items()]
    return [*found, Route("/api/openapi.json", partial(_described, site))]


def failed(sentence: str, status: int, fields: Mapping[str, str] | None = None) -> Response:
    """The answer for an error: a JSON object with `error`."""
    return _json({"error": sentence}, status, fields)


def _json(value: dict[str, Any], status: int = 200, fields: Mapping[str, str] | None = None) -> Response:
    return Response(rendering.to_json(value), status, fields, JSON)


async def _described(site: Site, request: Request) -> Response:
    await run_in_threadpool(_account, site, request)
    return _json(description())


async def _answer(site: Site, by_method: Mapping[str, Operation], request: Request) -> Response:
    operation = by_method["GET" if request.method == "HEAD" else request.method]
    account = await run_in_threadpool(_account, site, request)
    if not account.may(operation.role):
        raise HTTPException(403, f"this needs the role {operation.role!r}; your role is {account.role!r}")
    call = Call(site, account, request.path_params, await _input(request, operation))
    return await run_in_threadpool(_answered, operation, call)


def _answered(operation: Operation, call: Call) -> Response:
    try:
        return _json(operation.answer(call))
    except SpamfilterError as error:
        return failed(str(error), status_of(error))


def _account(site: Site, request: Request) -> Account:
    """The account by name and password, or by the proxy's header. Raises HTTPException."""
    if is_from_another_site(request):
        raise HTTPException(403, "this was sent by another site")
    origin = site.visitors.origin(request)
    try:
        if origin.proxied:
            return site.visitors.named(origin)
        account = site.visitors.basic(origin, request.headers.get("authorization", ""))
    except TooOften as error:
        raise HTTPException(429, str(error), error.fields) from None
    except SpamfilterError as error:
        raise HTTPException(status_of(error), str(error)) from None
    if account is None:
        raise HTTPException(401, "send name and password of an account by HTTP Basic", CHALLENGE)
    return account


async def _input(request: Request, operation: Operation) -> Input:
    """The query or the body by the operation's model. Raises HTTPException."""
    try:
        if operation.method != "GET":
            if kind_of(request) != JSON:
                raise HTTPException(415, f"a body is sent as {JSON}")
            return operation.input.model_validate_json(await body_of(request), strict=True)
        sent = dict(request.query_params)
        if len(sent) < len(request.query_params.multi_items()):
            raise HTTPException(400, "a parameter is repeated")
        return operation.input.model_validate_strings(sent)
    except ValidationError as error:
        raise HTTPException(400, sentence_of(error)) from None

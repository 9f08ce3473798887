"""The OpenAPI description of the operations."""

import re
from typing import Any

from spamfilter import __version__
from spamfilter.web.api.operations import ID, OPERATIONS, Operation

ERRORS = {
    400: "Something in the request is wrong; `error` says what.",
    401: "Name or password is wrong.",
    403: "The account may not do this, or has had its share.",
    404: "There is no such message.",
    408: "The request did not come to its end.",
    413: "The body is too large.",
    415: "The body is no application/json.",
    429: "Too many attempts to sign in.",
    503: "The database or the next hop is busy or away; try again.",
}


def description() -> dict[str, Any]:
    """OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    error = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "spamfilter",
            "version": __version__,
            "description": "Each request carries name and password of an account of the web page (HTTP Basic).",
        },
        "paths": paths,
        "security": [{"account": []}],
        "components": {
            "securitySchemes": {"account": {"type": "http", "scheme": "basic"}},
            "schemas": {"Error": error},
        },
    }


def _described(operation: Operation) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": ID} for name in re.findall(r"{(\w+)}", operation.path)
    ]
    parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in operation.query.items()]
    result = {"type": "object", "properties": {name: {} for name in operation.result}, "required": [*operation.result]}
    responses: dict[str, Any] = {"200": {"description": "Done.", "content": {"application/json": {"schema": result}}}}
    reference = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    responses |= {str(status): {"description": text, "content": reference} for status, text in ERRORS.items()}
    found = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": f"For the role `{operation.role}`.",
        "parameters": parameters,
        "responses": responses,
    }
    if operation.body is not None:
        required = [name for name, schema in operation.body.items() if "enum" in schema or name == "by"]
        schema = {"type": "object", "properties": dict(operation.body), "additionalProperties": False}
        schema |= {"required": required} if required else {}
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return found

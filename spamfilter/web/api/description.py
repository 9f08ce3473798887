"""The OpenAPI description of the operations. pydantic generates the schemas."""

import re
from typing import Any

from spamfilter import __version__
from spamfilter.web.api.operations import OPERATIONS, Operation
from spamfilter.web.message_views import ID

ID_SCHEMA = {"pattern": f"^{ID}$", "type": "string"}
ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}


def description() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "spamfilter",
            "version": __version__,
            "description": "Each request carries name and password of an account of the web page (HTTP Basic).",
        },
        "paths": paths,
        "security": [{"account": []}],
        "components": {"securitySchemes": {"account": {"type": "http", "scheme": "basic"}}},
    }


def _described(operation: Operation) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": ID_SCHEMA}
        for name in re.findall(r"{(\w+)}", operation.path)
    ]
    schema = operation.input.model_json_schema()
    found: dict[str, Any] = {}
    if operation.method == "GET":
        properties: dict[str, dict[str, Any]] = schema["properties"]
        for name, part in properties.items():
            given = {key: value for key, value in part.items() if value is not None}  # no "default": null
            parameters.append({"name": name, "in": "query", "schema": given})
    else:
        found["requestBody"] = {"required": True, "content": _json(schema)}
    result = {"type": "object", "properties": {name: {} for name in operation.result}, "required": [*operation.result]}
    return found | {
        "operationId": operation.answer.__name__,
        "summary": operation.summary,
        "description": f"For the role `{operation.role}`.",
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done.", "content": _json(result)},
            "default": {"description": "Not done; `error` says why.", "content": _json(ERROR)},
        },
    }


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}

"""As much of JSON Schema as our schemas use."""

from typing import Any

TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "null": type(None)}
KNOWN = {
    "$schema", "$defs", "$ref", "title", "type", "required", "properties", "additionalProperties", "items", "const",
    "enum", "oneOf",
}  # fmt: skip


def faults(value: Any, schema: dict[str, Any], root: dict[str, Any], where: str = "$") -> list[str]:
    """What in a value does not follow a schema."""
    assert set(schema) <= KNOWN, f"the validator does not know {set(schema) - KNOWN}"
    if "$ref" in schema:
        return faults(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, where)
    if "oneOf" in schema:
        tried = [faults(value, part, root, where) for part in schema["oneOf"]]
        fits = sum(not found for found in tried)
        return [] if fits == 1 else [f"{where}: {fits} of {len(tried)} fit {value}"]
    if "const" in schema:
        return [] if value == schema["const"] else [f"{where}: {value!r}"]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{where}: {value!r}"]
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if isinstance(value, bool) or not any(isinstance(value, TYPES[kind]) for kind in kinds):
        return [f"{where}: {value!r} is no {kinds}"]
    found: list[str] = []
    if isinstance(value, list):
        for number, item in enumerate(value):
            found += faults(item, schema.get("items", {}), root, f"{where}[{number}]")
    if isinstance(value, dict):
        found += [f"{where} has no {name}" for name in schema.get("required", ()) if name not in value]
        others = schema.get("additionalProperties", True)
        for name, item in value.items():
            inner = schema.get("properties", {}).get(name, others)
            if inner is False:
                found.append(f"{where} has {name}")
            elif inner is not True:
                found += faults(item, inner, root, f"{where}.{name}")
    return found

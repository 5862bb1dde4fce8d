"""A column of values as one PostgreSQL array parameter, in binary form.

Done here because one dumper call a value would cost more than the insert itself.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

ARRAY_OID = {"bytea": 1001, "text": 1009, "float8": 1022, "int8": 1016}
_ELEMENT_OID = {"bytea": 17, "text": 25, "float8": 701, "int8": 20}
_HEADER = struct.Struct("!iiIii")
_FLOAT = struct.Struct("!id")
_INT = struct.Struct("!iq")
_LENGTH = struct.Struct("!i")
_NULL = _LENGTH.pack(-1)


class Array(bytes):
    """A one-dimensional array in PostgreSQL's binary form, ready to send."""


class _ByteaArray(Array):
    pass


class _TextArray(Array):
    pass


class _FloatArray(Array):
    pass


class _IntArray(Array):
    pass


ARRAY_TYPE: Mapping[str, type[Array]] = {
    "bytea": _ByteaArray,
    "text": _TextArray,
    "float8": _FloatArray,
    "int8": _IntArray,
}


def pack(kind: str, column: Sequence[Any]) -> Array:
    """A column of values as one array parameter. Done here because a dumper call a value costs more than the insert."""
    parts: list[bytes] = [_HEADER.pack(1, 1, _ELEMENT_OID[kind], len(column), 1)]
    add = parts.append
    match kind:
        case "bytea":
            for value in column:
                if value is None:
                    add(_NULL)
                else:
                    add(_LENGTH.pack(len(value)))
                    add(value)
        case "text":
            for value in column:
                if value is None:
                    add(_NULL)
                else:
                    encoded = value.encode()
                    add(_LENGTH.pack(len(encoded)))
                    add(encoded)
        case "float8":
            for value in column:
                add(_NULL if value is None else _FLOAT.pack(8, value))
        case _:
            for value in column:
                add(_NULL if value is None else _INT.pack(8, value))
    return ARRAY_TYPE[kind](b"".join(parts))

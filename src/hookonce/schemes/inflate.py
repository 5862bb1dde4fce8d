"""Bodies that come compressed, as they were written: in steps, and bounded by what comes out rather than by what went in."""

from __future__ import annotations

import zlib

INFLATED_BYTES_MAX = 8 << 20
STEP_BYTES = 64 << 10
GZIP = zlib.MAX_WBITS | 16


def inflate(packed: bytes) -> bytes:
    """What was packed. ValueError for what is damaged, has something after its end, or grows too large."""
    stream = zlib.decompressobj(wbits=GZIP)
    parts, size, left = [], 0, packed
    while True:
        try:
            part = stream.decompress(left, STEP_BYTES)
        except zlib.error:
            raise ValueError("the body is no gzip") from None
        left = stream.unconsumed_tail
        size += len(part)
        if size > INFLATED_BYTES_MAX:
            raise ValueError(f"the body inflates to more than {INFLATED_BYTES_MAX} bytes")
        parts.append(part)
        if stream.eof:
            break
        if not part and not left:
            raise ValueError("the compressed body is cut short")
    if stream.unused_data:
        raise ValueError("there is something after the compressed body")
    return b"".join(parts)


__all__ = ["INFLATED_BYTES_MAX", "inflate"]

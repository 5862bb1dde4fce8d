"""Write the event types that providers name in their own packages: `python scripts/event_types.py`. Facts, with their source."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

DATA = Path(__file__).parent.parent / "src" / "hookonce" / "providers" / "data"


def stripe() -> set[str]:
    """The events that an endpoint can subscribe to."""
    spec = find_spec("stripe")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent
    text = (folder / "params" / "_webhook_endpoint_create_params.py").read_text(encoding="utf-8")
    thin = [path.read_text(encoding="utf-8") for path in sorted((folder / "events").glob("_v*_event.py"))]
    named = {name for one in thin for name in re.findall(r'"(v[0-9]\.[a-z_0-9.]+)"', one)}
    return set(re.findall(r'"([a-z_0-9]+(?:\.[a-z_0-9]+)+)"', text)) | named


def main() -> None:
    DATA.mkdir(exist_ok=True)
    for name, find in (("stripe", stripe),):
        head = f"# the package {name} {version(name)}, read on {datetime.now(UTC):%Y-%m-%d}"
        (DATA / f"{name}_types.txt").write_text("\n".join([head, *sorted(find())]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

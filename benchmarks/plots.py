"""One picture for each section, as SVG and PNG, drawn from its JSON file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Data = Mapping[str, Mapping[str, float]]

OURS = "#1b6ca8"
OTHER = "#9aa5b1"
CEILING = "#d0d5db"
GOAL = "#c0392b"
SECOND = "#d98e04"


def draw(section: str, folder: Path) -> None:
    """Draw a section's results; without matplotlib, say how to get it. A section that is only a table has no picture."""
    if section not in PICTURES:
        return
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot as plt
    except ImportError:
        print(f"# no picture of {section}: pip install matplotlib")
        return
    plt.rcParams.update(
        {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "hookonce"}
    )
    kept = json.loads((folder / f"{section}.json").read_text(encoding="utf-8"))
    figure = PICTURES[section](kept["data"], plt)
    figure.text(
        0.995, 0.005, f"{kept['machine']['date']} · {kept['machine']['machine']}", ha="right", size=6, color="gray"
    )
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    figure.savefig(folder / f"{section}.svg", metadata={"Date": None})
    figure.savefig(folder / f"{section}.png", dpi=144)
    plt.close(figure)


def accept(data: Data, plt: Any) -> Any:
    """Bars for each number of connections: as a part of the echo, and the p99."""
    names = list(dict.fromkeys(key.split("|")[0] for key in data))
    connections = list(dict.fromkeys(key.split("|")[1] for key in data))
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2))
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        places = [index + (number - (len(names) - 1) / 2) * width for index in range(len(connections))]
        seen = [data[f"{name}|{count}"] for count in connections]
        look = {"color": _colour(name), "label": name, "alpha": 0.55 if "SQLite" in name else 1.0}
        bars = left.bar(places, [one["of_echo"] for one in seen], width, **look)
        left.bar_label(bars, [f"{one['rate'] / 1000:.1f}k" for one in seen], size=5.5, padding=1)
        right.bar(places, [one["p99_ms"] for one in seen], width, **look)
    for axes, goal, text in ((left, 0.60, "goal at 64: 0.60"), (right, 5.0, "goal at 64: 5 ms")):
        axes.set_xticks(range(len(connections)), connections)
        axes.set_xlabel("connections")
        _goal(axes, goal, text)
    left.set_ylabel("requests/s as a part of a bare echo's")
    left.set_title("Accept (labels: requests/s)")
    right.set_ylabel("p99 of the answer, ms")
    right.set_yscale("log")
    right.set_title("Accept: p99")
    right.legend(fontsize=6.5, frameon=False, loc="upper left")
    right.margins(y=0.45)
    _plain_numbers(right)
    return figure


def drain(data: Data, plt: Any) -> Any:
    """Bars for each way to work, beside the hand-written loop."""
    kinds = list(dict.fromkeys(key.split("|")[0] for key in data))
    longest = max(sum(key.startswith(kind) for key in data) for kind in kinds)
    figure, panes = plt.subplots(1, len(kinds), figsize=(6.2 * len(kinds), 1.2 + 0.34 * longest), squeeze=False)
    for axes, kind in zip(panes[0], kinds, strict=True):
        seen = {key.split("|")[1]: value for key, value in data.items() if key.startswith(f"{kind}|")}
        bars = axes.barh(list(seen), [one["times"] for one in seen.values()], color=[_colour(name) for name in seen])
        axes.bar_label(bars, [f"{one['times']:.1f}x  {one['rate']:,.0f}/s" for one in seen.values()], size=7, padding=2)
        axes.invert_yaxis()
        axes.margins(x=0.34)
        axes.set_xlabel("events/s, times the hand-written loop's")
        axes.set_title(f"Drain, {_title(kind)}")
        if kind == "postgres":
            axes.axvline(2.5, color=GOAL, ls="--", lw=0.9)
            axes.axvline(15.0, color=GOAL, ls=":", lw=0.9)
            axes.text(
                0.99,
                0.01,
                "goals: 2.5 (dashed); batch 15 (dotted)",
                transform=axes.transAxes,
                ha="right",
                size=7,
                color=GOAL,
            )
    return figure


def growth(data: Data, plt: Any) -> Any:
    """Lines over the number of stored receipts."""
    lines = list(dict.fromkeys(tuple(key.split("|")[:2]) for key in data))
    figure, axes = plt.subplots(figsize=(6.4, 4))
    for kind, step in lines:
        points = sorted(
            (int(key.split("|")[2]), value["of_smallest"])
            for key, value in data.items()
            if key.startswith(f"{kind}|{step}|")
        )
        look = {"color": OURS if kind == "postgres" else SECOND, "ls": "-" if step == "accept" else "--", "marker": "o"}
        axes.plot(*zip(*points, strict=True), label=f"{_title(kind)}, {step}", **look)
    _goal(axes, 0.90, "goal: 0.90")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("processed receipts stored")
    axes.set_ylabel("rate, of the rate at the smallest")
    axes.set_title("Growth")
    axes.legend(fontsize=7, frameon=False, loc="lower left")
    return figure


def duplicates(data: Data, plt: Any) -> Any:
    figure, axes = plt.subplots(figsize=(6.4, 3.4))
    _latencies(axes, list(data), {name: [one[name] for one in data.values()] for name in ("p50_ms", "p99_ms")})
    _goal(axes, 50.0, "goal: p99 < 50 ms")
    axes.set_title("Duplicates, answered while the first one's handler sleeps")
    return figure


def end_to_end(data: Data, plt: Any) -> Any:
    figure, axes = plt.subplots(figsize=(6.4, 3.4))
    fields = ("answer_p50_ms", "answer_p99_ms", "commit_p50_ms", "commit_p99_ms")
    _latencies(axes, list(data), {name: [one[name] for one in data.values()] for name in fields}, log=False)
    axes.set_title("From sending to the answer, and to the handler's commit")
    return figure


def _latencies(axes: Any, names: Sequence[str], values: Mapping[str, Sequence[float]], *, log: bool = True) -> None:
    width = 0.8 / len(values)
    shades = [CEILING, OTHER, "#6fa8d6", OURS][-len(values) :]
    for number, (field, heights) in enumerate(values.items()):
        places = [index + (number - (len(values) - 1) / 2) * width for index in range(len(names))]
        bars = axes.bar(places, heights, width, color=shades[number], label=field.replace("_ms", "").replace("_", " "))
        axes.bar_label(bars, fmt="%.1f", size=7)
    axes.set_xticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
    if log:
        axes.set_yscale("log")
        _plain_numbers(axes)
    axes.set_ylabel("ms")
    axes.legend(fontsize=7, frameon=False)


def _plain_numbers(axes: Any) -> None:
    """On a logarithmic axis: 5, not 5 x 10^0."""
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")


def _goal(axes: Any, value: float, text: str) -> None:
    axes.axhline(value, color=GOAL, ls="--", lw=0.9)
    axes.annotate(text, (1.0, value), xycoords=("axes fraction", "data"), ha="left", va="center", size=7, color=GOAL)


def _colour(name: str) -> str:
    if name == "echo":
        return CEILING
    if name.startswith("inbox"):
        return SECOND
    return OURS if name.startswith("hookonce") else OTHER


def _title(kind: str) -> str:
    return {"postgres": "PostgreSQL", "sqlite": "SQLite"}[kind]


PICTURES: Mapping[str, Callable[[Data, Any], Any]] = {
    "accept": accept,
    "drain": drain,
    "growth": growth,
    "duplicates": duplicates,
    "end_to_end": end_to_end,
}

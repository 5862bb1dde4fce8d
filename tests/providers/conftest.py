"""The fixtures of the core's tests."""

from tests.flow.fixtures import lite, pg, place, template_folder

__all__ = ["lite", "pg", "place", "template_folder"]

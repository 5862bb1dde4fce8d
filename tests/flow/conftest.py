"""The fixtures of the core's tests."""

from tests.flow.fixtures import box, lite, lite_box, pg, pg_box, place, template_folder

__all__ = ["box", "lite", "lite_box", "pg", "pg_box", "place", "template_folder"]

"""The receiver as a plain ASGI callable: mountable anywhere, no framework needed."""

from hookonce.asgi.app import App

__all__ = ["App"]

"""The servers under load: each module holds one ASGI callable named `app`."""

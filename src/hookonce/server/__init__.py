"""Serving an inbox: the HTTP server, health, graceful shutdown and several processes. Needs the extra `server`."""

from hookonce.server.health import Health, with_health
from hookonce.server.serve import ListenError, Options, exit_code_of, run_server, serve

__all__ = ["Health", "ListenError", "Options", "exit_code_of", "run_server", "serve", "with_health"]

"""Settings, and where each came from: flag, else environment, else one file, else default. All mistakes at once."""

from hookonce.config.reader import find_file, load
from hookonce.config.settings import Config, SecretReference, Setting, SourceSettings
from hookonce.config.values import KEYS, Address, read_address, read_seconds

__all__ = [
    "KEYS",
    "Address",
    "Config",
    "SecretReference",
    "Setting",
    "SourceSettings",
    "find_file",
    "load",
    "read_address",
    "read_seconds",
]

"""The sidecar: checks what language-model engines answer, recovers collapsed answers, and leaves evidence."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("outguard")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "unknown"

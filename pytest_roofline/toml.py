"""The TOML reader of the standard library, or the package it came from where Python is 3.10."""

import sys

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["tomllib"]

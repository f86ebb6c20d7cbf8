"""Helpers of several test files: runs of the tool and of pytest, and inputs in the formats of other tools."""

"""Tests that pytest cannot collect or would not survive: task folders, scripts, ``perf_report`` functions, problem files.

``collectors`` finds them by their names and syntax trees; ``child`` runs each in a child process. ``child_main`` is the program
in that process and imports nothing of pytest.
"""

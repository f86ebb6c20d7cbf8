"""Tests that pytest would not collect, or not survive: task folders, scripts, ``perf_report`` functions, problem files.

``collectors`` finds them; ``inside`` is what runs in a child process, which imports nothing of pytest.
"""

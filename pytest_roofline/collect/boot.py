"""Runs a file as ``__main__`` in a process of its own: ``boot.py LIMIT FOLDER FILE [ARGUMENT...]``.

LIMIT: seconds after which it says where it stands and ends, also when nobody is left to kill it. FOLDER: where the file's own
folder goes on ``sys.path``: ``first``, as Python puts it (with PYTHONSAFEPATH it does not); ``last`` for a file that is named
like a module of the standard library (``unittest.py``); ``none``. Started by its path, so it imports nothing of this package,
and nothing else before the folder of this file is off ``sys.path``.
"""

import sys

SAFE_PATH = getattr(sys.flags, "safe_path", False)  # since 3.11
if not SAFE_PATH:
    del sys.path[0]

if __name__ == "__main__":
    import faulthandler
    import os
    import runpy

    _limit, _place, _file = float(sys.argv[1]), sys.argv[2], sys.argv[3]
    faulthandler.enable()
    faulthandler.dump_traceback_later(_limit, exit=True)
    if _place == "last" or (_place == "first" and not SAFE_PATH):
        sys.path.insert(0 if _place == "first" else len(sys.path), os.path.dirname(_file))
    sys.argv[:] = sys.argv[3:]
    runpy.run_path(_file, run_name="__main__")

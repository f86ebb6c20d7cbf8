"""Run a file as ``__main__`` in a child process, or collect's ``child_main``.

    child_boot.py LIMIT FOLDER FILE [ARGUMENT...]
    child_boot.py LIMIT package FOLDERS [ARGUMENT...]

LIMIT: seconds after which the process prints where it is and ends, even if its parent is gone. FOLDER: where the file's
folder goes on ``sys.path``. ``first`` is where Python puts it (with PYTHONSAFEPATH it does not); ``last`` is for a file named
like a module of the standard library (``unittest.py``). FOLDERS: from where ``child_main`` and the engine are imported.

It is started by its path. It therefore imports nothing of this package, and nothing else before the folder of this file is
off ``sys.path``.
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
    if _place == "package":
        sys.path += [folder for folder in _file.split(os.pathsep) if folder not in sys.path]
        from pytest_roofline.collect.child_main import main

        main(*sys.argv[4:])
    else:
        if _place == "last" or (_place == "first" and not SAFE_PATH):
            sys.path.insert(0 if _place == "first" else len(sys.path), os.path.dirname(_file))
        sys.argv[:] = sys.argv[3:]
        runpy.run_path(_file, run_name="__main__")

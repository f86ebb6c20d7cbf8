"""The roofline model behind the pytest-roofline skill and plugin: standard library only, Python 3.8 and newer.

Modules, in the order data flows: ``units`` (numbers, dtypes), ``entry`` (every field of a result), ``peaks`` (hardware
denominators), ``models`` (bytes and FLOPs per op), ``kernels`` and ``modelconfig`` (what a kernel name and a
``config.json`` say about the op), ``metrics`` (the verdict), ``inputs``, ``analyze``, ``artifact``, ``report``, ``cli``.

Nothing is imported here, so that ``import roofline_engine`` costs next to nothing; import the module you need.
"""

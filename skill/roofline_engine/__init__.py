"""The roofline model behind the pytest-roofline skill and plugin: standard library only, Python 3.8 and newer.

Modules, in the order data flows: ``units`` (numbers, dtypes), ``fields`` (every field of a result), ``peaks`` (hardware
denominators), ``work`` and ``ops`` (bytes and FLOPs of an op), ``roofline`` (the verdict), ``check`` (a measurement against
roof and prediction), ``kernels`` and ``config`` (what a kernel name and a ``config.json`` say about the op), ``counters``,
``inputs``, ``analyze``, ``report``, ``cli``.

Nothing is imported here, so that ``import roofline_engine`` costs next to nothing; import the module you need.
"""

"""``Record``: ``typing.NamedTuple`` without the import of ``typing``, which would be a third of the helper's start-up.

Type checkers see the original. At run time the class statement is turned into a ``collections.namedtuple`` with the same
fields, defaults and methods.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple as Record
else:
    from collections import namedtuple

    class _Build(type):
        def __new__(mcs, name, bases, space):
            if not bases:
                return super().__new__(mcs, name, bases, space)
            types = space.pop("__annotations__", {})
            defaults = [space.pop(field) for field in types if field in space]
            made = namedtuple(name, types, defaults=defaults, module=space.pop("__module__"))
            made.__annotations__ = types
            made._replace = _replacing(made)
            for key, value in space.items():
                setattr(made, key, value)
            return made

    def _replacing(made):
        """``_replace`` in the time of the fields that change: ``namedtuple``'s looks every field up, fifty in an entry."""
        new = tuple.__new__
        places = {field: at for at, field in enumerate(made._fields)}

        def _replace(self, **changes):
            values = list(self)
            try:
                for field, value in changes.items():
                    values[places[field]] = value
            except KeyError:
                raise TypeError(f"{made.__name__} has no field {field}") from None
            return new(made, values)

        return _replace

    class Record(metaclass=_Build):
        pass


__all__ = ["Record"]

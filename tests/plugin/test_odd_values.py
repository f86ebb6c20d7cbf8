"""Values of a test that are odd to look at: outcome, result and warnings are the same with the flag and without it."""

from __future__ import annotations

import pytest

from pytest_roofline.timing import Settings
from support.project import Project

pytest_plugins = ["pytester"]

#: One object of each kind. ``LOOKS`` counts what runs of an object's own code without its owner asking for it.
ZOO = '''
    import collections, enum, functools, itertools, types, warnings, weakref
    from unittest.mock import MagicMock, Mock, NonCallableMock

    import numpy as np
    import pytest

    LOOKS = []

    class Proxy:
        """It raises on every attribute, its class and length included."""
        def __getattribute__(self, name):
            LOOKS.append(name)
            raise RuntimeError(f"closed: {name}")
        def __len__(self):
            raise RuntimeError("closed")
        def __iter__(self):
            raise RuntimeError("closed")
        def __eq__(self, other):
            raise RuntimeError("closed")
        def __hash__(self):
            raise RuntimeError("closed")
        def __bool__(self):
            raise RuntimeError("closed")
        def __repr__(self):
            raise RuntimeError("closed")

    class Liar:
        """It says that it is a list."""
        @property
        def __class__(self):
            return list
        def __iter__(self):
            LOOKS.append("iter")
            return itertools.count()
        def __len__(self):
            LOOKS.append("len")
            return 2**62

    class Shape:
        def __init__(self, value):
            self.value = value
        @property
        def shape(self):
            LOOKS.append("shape")
            if isinstance(self.value, Exception):
                raise self.value
            return self.value

    class Array:
        def __array__(self, *args, **kwargs):
            LOOKS.append("array")
            raise RuntimeError("not an array")

    class Interface:
        @property
        def __array_interface__(self):
            LOOKS.append("interface")
            raise RuntimeError("not an array")

    class Endless(list):
        def __iter__(self):
            LOOKS.append("iter")
            return itertools.count()
        def __len__(self):
            LOOKS.append("len")
            return 2**62

    class Lazy(collections.abc.Mapping):
        """Its values are read from a file."""
        def __getitem__(self, key):
            LOOKS.append("get")
            raise OSError("closed file")
        def __iter__(self):
            LOOKS.append("iter")
            return iter("ab")
        def __len__(self):
            return 2

    class Keys(dict):
        def values(self):
            LOOKS.append("values")
            raise RuntimeError("closed")
        items = __iter__ = keys = values

    class Pair(collections.namedtuple("Pair", "a b")):
        def __iter__(self):
            LOOKS.append("iter")
            raise RuntimeError("closed")

    class Noisy:
        @property
        def shape(self):
            warnings.warn("shape is deprecated", DeprecationWarning)
            return ()
        @property
        def dtype(self):
            warnings.warn("dtype is deprecated", DeprecationWarning)

    class Meta(type):
        def __getattr__(cls, name):
            LOOKS.append(name)
            raise RuntimeError(f"closed: {name}")
        def __eq__(cls, other):
            raise RuntimeError("closed")
        def __hash__(cls):
            return 1

    class Strict(metaclass=Meta):
        pass

    class Closed(np.ndarray):
        @property
        def shape(self):
            raise RuntimeError("closed")

    class Scalar:
        def item(self):
            LOOKS.append("item")
            raise RuntimeError("closed")

    class Slots:
        __slots__ = ("a",)

    def cyclic_list():
        value = []
        value.append(value)
        return value

    def cyclic_dict():
        value = {}
        value["self"] = value
        return value

    def cyclic_object():
        value = types.SimpleNamespace()
        value.self = value
        return value

    def deep_list():
        value = []
        for _ in range(100_000):
            value = [value]
        return value

    def deep_tuple():
        value = ()
        for _ in range(1_000):
            value = (value,)
        return value

    def objects():
        value = np.empty(2, object)
        value[0] = Proxy()
        return value

    def unbound():
        def inner():
            return later
        if False:
            later = 1
        return inner

    ODD = {
        "mock": Mock, "magic": MagicMock, "noncallable": NonCallableMock, "spec": lambda: Mock(spec=np.ndarray),
        "proxy": Proxy, "liar": Liar, "raising": lambda: Shape(ValueError("closed")), "seven": lambda: Shape(7),
        "text": lambda: Shape("abc"), "itself": lambda: Shape(cyclic_list()), "array": Array, "interface": Interface,
        "endless": Endless, "lazy": Lazy, "keys": lambda: Keys(a=1), "pair": lambda: Pair(1, 2), "noisy": Noisy,
        "strict": Strict, "strict class": lambda: Strict, "closed": lambda: np.ones(3).view(Closed), "scalar": Scalar,
        "slots": Slots, "cyclic list": cyclic_list, "cyclic dict": cyclic_dict, "cyclic object": cyclic_object,
        "deep list": deep_list, "deep tuple": deep_tuple, "unbound": unbound, "generator": lambda: (n for n in "ab"),
        "weak": lambda: weakref.proxy(cyclic_object), "module": lambda: types, "method": lambda: [].append,
        "partial": lambda: functools.partial(Mock()), "user dict": lambda: collections.UserDict(a=1),
        "masked": lambda: np.ma.masked_all(3), "objects": objects,
        "not implemented": lambda: NotImplemented, "ellipsis": lambda: ...,
        "nan": lambda: float("nan"), "type": lambda: int, "enum": lambda: enum.Enum("Color", "RED"),
        "memoryview": lambda: memoryview(b"abc"), "exception": lambda: ValueError("closed"),
    }
    NAMES = list(ODD)

    @pytest.fixture(params=NAMES)
    def odd(request):
        value = ODD[request.param]()
        LOOKS.clear()
        yield value
        looks = [look for look in LOOKS if look != "__class__"]  # pytest itself asks for it
        mine = list(value.mock_calls) if issubclass(type(value), NonCallableMock) else []
        assert (looks, mine) == ([], [])

    class Holder:
        def __init__(self, value):
            self.value = value
        def method(self):
            return self.value

    X = np.ones(4)
'''
USES = """
    def test_result(odd, FIXTURE):
        assert CALL(lambda: odd) is odd

    def test_argument(odd, FIXTURE):
        assert CALL(lambda value: value, odd) is odd

    def test_beside_an_array(odd, FIXTURE):
        assert CALL(lambda array, value: (array + array, value), X, odd)[1] is odd

    def test_nested(odd, FIXTURE):
        assert CALL(lambda: {"a": [odd, (odd,)]})["a"][0] is odd

    def test_attribute(odd, FIXTURE):
        assert CALL(Holder(odd).method) is odd

    def test_global_name(odd, FIXTURE):
        global NAME
        NAME = odd
        assert CALL(lambda: (X + X, NAME))[1] is odd

    def test_default(odd, FIXTURE):
        def fn(x=X, value=odd):
            return x + x, value
        assert CALL(fn)[1] is odd
"""
PLAIN = """
    @pytest.fixture(params=[name for name in NAMES if name not in ("magic", "proxy", "strict class")])  # nor what it awaits
    def value(request):
        return ODD[request.param]()

    def test_plain(odd):
        X + X

    FIT = [name for name in NAMES if name not in ("proxy", "strict")]  # pytest itself looks at parameters

    @pytest.mark.parametrize("m", [ODD[name]() for name in FIT], ids=FIT)
    def test_parameters(m, request):
        X + X

    def test_returned(value):
        return value
"""


QUICK = (
    "--benchmark-min-rounds=1",
    "--benchmark-max-time=0.0001",
    "--benchmark-warmup=off",
    "--benchmark-calibration-precision=1",
)


def check_same(project: Project, plugins: tuple[str, ...], *args: str) -> None:
    """Run with the flag and without it, and compare the outcomes, the warnings and the failures."""
    counts, kinds = [], []
    for flag in (False, True):
        run = project.run(*args, "--roofline-device=MI355X", "-rfE", "--tb=line", plugins=plugins, flag=flag)
        assert [line for line in run.out.splitlines() if line.startswith(("FAILED", "ERROR")) or "fault of" in line] == []
        counts.append({name: count for name, count in run.counts.items() if name != "warning"})
        kinds.append({line.strip().partition(": ")[2] for line in run.out.splitlines() if "Warning: " in line})
    assert counts[0] == counts[1]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("call", ["benchmark", "roofline.measure"])
def test_an_odd_value_changes_nothing_of_a_timed_test(project: Project, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = Settings(warmup_calls=1, warmup_s=0.0, min_s=0.0, budget_s=0.0)
    monkeypatch.setattr("pytest_roofline.fixture.Recorder._settings", lambda self: quick)
    project.write(test_zoo=ZOO + USES.replace("FIXTURE", call.partition(".")[0]).replace("CALL", call))
    check_same(project, *((("benchmark",), *QUICK) if call == "benchmark" else ((),)))


def test_an_odd_value_changes_nothing_of_a_plain_test(project: Project) -> None:
    project.write(test_zoo=ZOO + PLAIN)
    check_same(project, ())

"""Which clock and which eviction a call gets, from where its arrays lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from .arrays import HOST, Place, loaded
from .clock import Clock, HostClock
from .events import CupyEvents, EventClock, GraphClock, TorchEvents
from .eviction import Flush, cupy_flush, host_cache, host_flush, jax_flush, torch_flush
from .settings import Settings

NO_GRAPH = "no graph replay: it needs arrays of torch on one CUDA or HIP device"


class Setup(NamedTuple):
    """fallback: the clock for a call that cannot be captured as a graph."""

    clock: Clock
    flush: Flush | None = None
    cache: str = "warm"
    notes: tuple[str, ...] = ()
    fallback: Clock | None = None


def choose(found: set[Place], settings: Settings) -> Setup:
    """One device: its own events. JAX: its own wait. Several devices, or one without events of ours: the host, with a wait."""
    devices = found - {HOST}
    if settings.graph and {place[:2] for place in devices} != {("torch", "cuda")}:
        setup = choose(found, replace(settings, graph=False))
        return setup._replace(notes=(*setup.notes, NO_GRAPH))
    if not devices:
        return _host(HOST in found, settings)
    if {place.framework for place in devices} == {"jax"}:
        return _jax(devices, settings)
    if len(devices) == 1:
        place = _one(devices)
        if place[:2] == ("torch", "cuda"):
            return _torch(place.number, settings)
        if place.framework == "cupy":
            return _cupy(place.number, settings)
    setup = _waiting(devices, settings)
    return setup._replace(notes=(*setup.notes, NO_GRAPH)) if settings.graph else setup


def _one(found: set[Place]) -> Place:
    (place,) = found
    return place


def _host(on_host: bool, settings: Settings) -> Setup:
    cuda = getattr(loaded("torch"), "cuda", None)
    if not on_host and cuda is not None and cuda.is_initialized():
        note = "no array among the arguments, the closure or the result: timed by the host with the device waited for"
        return _no_flush(Setup(HostClock(cuda.synchronize), notes=(note,)), settings)
    return _host_eviction(Setup(HostClock()), settings)


def _host_eviction(setup: Setup, settings: Settings) -> Setup:
    if settings.cache != "cold":
        return setup
    last = host_cache()
    flushed = setup._replace(flush=host_flush(settings.llc_bytes or last.bytes), cache="cold")
    if last.instances == 1:
        return flushed
    many = "an unknown number of" if last.instances is None else str(last.instances)
    note = f"{many} last-level caches; the one of the core that reads the buffer is evicted, the others may not be"
    return flushed._replace(cache="unknown", notes=(*setup.notes, note))


def _torch(device: int, settings: Settings) -> Setup:
    torch = loaded("torch")
    api = TorchEvents(torch.cuda, device)
    events = EventClock(api)
    setup = Setup(GraphClock(api, torch.cuda, device), fallback=events) if settings.graph else Setup(events)
    return _device_eviction(setup, settings, lambda: torch_flush(torch, device, settings.llc_bytes))


def _cupy(device: int, settings: Settings) -> Setup:
    cupy = loaded("cupy")
    setup = Setup(EventClock(CupyEvents(cupy.cuda, device)))
    return _device_eviction(setup, settings, lambda: cupy_flush(cupy, device, settings.llc_bytes))


def _jax(found: set[Place], settings: Settings) -> Setup:
    jax = loaded("jax")
    setup = Setup(HostClock(ready=jax.block_until_ready))
    if all(place.platform == "cpu" for place in found):
        return _host_eviction(setup, settings)
    if len(found) > 1:
        return _no_flush(setup, settings)
    place = _one(found)
    (device,) = [device for device in jax.devices(place.platform) if device.id == place.number]
    return _device_eviction(setup, settings, lambda: jax_flush(jax, device, settings.llc_bytes))


def _device_eviction(setup: Setup, settings: Settings, make: Callable[[], Flush]) -> Setup:
    if settings.cache == "warm":
        return setup
    try:
        flush = make()
        flush()
    except (RuntimeError, MemoryError) as error:  # torch's and CuPy's out-of-memory errors are these
        return setup._replace(notes=(*setup.notes, f"cache not evicted: {type(error).__name__}: {error}"))
    return setup._replace(flush=flush, cache="cold")


def _waiting(found: set[Place], settings: Settings) -> Setup:
    waits = [wait for place in sorted(found) if place.framework != "jax" and (wait := _wait_for(place)) is not None]
    ready = loaded("jax").block_until_ready if any(place.framework == "jax" for place in found) else None
    devices = ", ".join(f"{place.framework} {place.platform}:{place.number}" for place in sorted(found))
    note = f"arrays on {devices}: timed by the host with a wait for each"
    if not (waits or ready):
        note = f"arrays on {devices}, and no loaded library to wait for it with: the time may be that of the launch alone"
        return _no_flush(Setup(HostClock(), notes=(note,)), settings)
    wait = (lambda: [wait() for wait in waits]) if waits else None
    return _no_flush(Setup(HostClock(wait, ready), notes=(note,)), settings)


def _wait_for(place: Place) -> Callable[[], Any] | None:
    """The device-wide wait that this place's library offers; any of the CUDA libraries waits for all of them."""
    if place.framework == "torch" and place.platform != "cuda":
        wait: Callable[[], Any] | None = getattr(getattr(loaded("torch"), place.platform, None), "synchronize", None)
        return wait
    torch_cuda, cupy, numba = getattr(loaded("torch"), "cuda", None), loaded("cupy"), loaded("numba.cuda")
    if torch_cuda is not None and torch_cuda.is_initialized():
        return lambda: torch_cuda.synchronize(place.number)
    if cupy is not None:
        return lambda: cupy.cuda.Device(place.number).synchronize()
    if numba is not None:
        synchronize: Callable[[], Any] = numba.synchronize
        return synchronize
    return None


def _no_flush(setup: Setup, settings: Settings) -> Setup:
    if settings.cache != "cold":
        return setup
    return setup._replace(notes=(*setup.notes, "cache not evicted: no eviction for these devices"))

"""Which devices the environment leaves visible: the rules of CUDA_VISIBLE_DEVICES, which HIP and ROCr took over."""

from __future__ import annotations


def entries(text: str | None) -> list[str] | None:
    """The listed devices up to the first that is invalid, which hides the rest; None where nothing is listed at all.

    An empty list, as of ``CUDA_VISIBLE_DEVICES=``, hides every device.
    """
    if text is None:
        return None
    found = []
    for entry in (part.strip() for part in text.split(",")):
        if not (entry.isdecimal() or entry.startswith(("GPU-", "MIG-"))):
            break
        found.append(entry)
    return found


def first_visible(text: str | None, count: int) -> int | str | None:
    """The index of the first visible device of ``count``, or the id it is listed by; None where none is visible."""
    listed = entries(text)
    if listed is None:
        return 0 if count else None
    if not listed or not count:
        return None
    if listed[0].isdecimal():
        return int(listed[0]) if int(listed[0]) < count else None
    return listed[0]

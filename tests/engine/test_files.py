"""The one reader of text, tables and JSON: encodings, gzip, bounds, and what a message names."""

from __future__ import annotations

import gzip
import os
import re
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from roofline_engine.files import (
    append_text,
    decode_text,
    open_binary,
    parse_json,
    read_bytes,
    read_json,
    read_table,
    read_text,
    write_whole,
)

TEXT = "Name,µs\nk,1\n"


@pytest.mark.parametrize(
    "raw",
    [TEXT.encode(), TEXT.encode("utf-8-sig"), TEXT.encode("utf-16"), b"\xfe\xff" + TEXT.encode("utf-16-be")],
    ids=["utf-8", "bom", "utf-16", "utf-16-be"],
)
@pytest.mark.parametrize("packed", [False, True])
def test_text_is_read_in_every_encoding_plain_and_packed(raw: bytes, packed: bool, tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_bytes(gzip.compress(raw) if packed else raw)
    assert read_text(str(path)) == TEXT


def test_a_gzip_is_bounded_by_what_comes_out_of_it(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json"
    path.write_bytes(gzip.compress(b" " * 3_000_000))
    assert len(read_bytes(str(path), 2**22)) == 3_000_000
    with pytest.raises(ValueError, match=r"bomb\.json: larger than 1 MiB when unpacked\. "):
        read_bytes(str(path), 2**20)
    with pytest.raises(ValueError, match=r"bomb\.json: larger than 0 MiB\. "):
        read_bytes(str(path), 100)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"{\xff}", "not UTF-8 text (byte 1)"),
        (b"\xff\xfe{\x00\x00", "not UTF-16 text (byte 4)"),
        (b"\x1f\x8bnot packed", "Unknown compression method"),
        (gzip.compress(b"{}", mtime=0)[:-4], "Compressed file ended before the end-of-stream marker"),
        (b'{"a": 1,}', "not JSON: line 1 column"),
        (b"[" * 100_000, "nested more than 100 levels deep"),
        (b"1" * 5000, "an integer of more digits than Python reads (4300)"),
    ],
)
def test_what_cannot_be_read_is_one_line_that_names_the_file(raw: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "in\x1b.json"
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=r"in\\x1b\.json: ") as caught:
        read_json(str(path))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("raw", [b"{}", gzip.compress(b"{}")], ids=["plain", "packed"])
def test_the_pipe_of_a_shell_is_read(raw: bytes) -> None:
    ours, theirs = os.pipe()
    writer = threading.Thread(target=write_and_close, args=(theirs, raw), daemon=True)
    writer.start()
    assert read_json(f"/dev/fd/{ours}") == {}  # what <(command) becomes
    writer.join()
    os.close(ours)


def write_and_close(descriptor: int, raw: bytes) -> None:
    with open(descriptor, "wb") as stream:
        stream.write(raw)


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path.name)  # the length of a socket's path is limited


def make_device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))  # a null device
        with open(path, "wb"):
            pass
    except OSError:
        pytest.skip("no device can be made here: it needs root and a folder that allows devices")


ODD = [(make_fifo, "a named pipe (FIFO)"), (make_socket, "a socket"), (make_device, "a device")]
needs_nodes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")


@needs_nodes
@pytest.mark.parametrize(("make", "kind"), [*ODD, (Path.mkdir, "a directory")], ids=["fifo", "socket", "device", "folder"])
@pytest.mark.parametrize("linked", [False, True])
def test_only_regular_files_are_read(
    make: Callable[[Path], None], kind: str, linked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "odd")
    (tmp_path / "link").symlink_to("odd")
    name = "link" if linked else "odd"
    with pytest.raises(ValueError, match=f"^{name}: {re.escape(kind)}, expected a regular file$"):
        read_json(name)


def test_the_bound_is_told_and_can_be_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "list.json"
    path.write_bytes(b" " * 3_000_000)
    with pytest.raises(ValueError, match=r"list\.json: larger than 1 MiB\. ROOFLINE_MAX_FILE_MIB=N raises the bound to N MiB$"):
        read_bytes(str(path), 2**20)
    monkeypatch.setenv("ROOFLINE_MAX_FILE_MIB", "3")
    assert len(read_bytes(str(path), 2**20)) == 3_000_000
    assert len(read_bytes(str(path), 2**22)) == 3_000_000  # it lowers no bound
    monkeypatch.setenv("ROOFLINE_MAX_FILE_MIB", "big")
    with pytest.raises(ValueError, match="ROOFLINE_MAX_FILE_MIB is 'big', expected a number"):
        read_bytes(str(path), 2**20)


def test_a_stream_of_a_gzip_is_bounded_and_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b"12345678\n" * 200_000))  # 1.8 MB
    with open_binary(str(path)) as stream:
        assert sum(map(len, stream)) == 1_800_000
        assert stream.seek(0) == 0
        assert stream.readline() == b"12345678\n"
    with open_binary(str(path), largest_unpacked=2**20) as stream, pytest.raises(OSError, match="1 MiB when unpacked"):
        sum(map(len, stream))


@pytest.mark.parametrize(("head", "tail"), [("[", "]"), ('{"a": ', "}")])
def test_nesting_is_bounded_at_one_depth(head: str, tail: str) -> None:
    assert parse_json(head * 100 + "1" + tail * 100, "f")
    for depth in (101, 900, 100_000):
        with pytest.raises(ValueError, match=r"^f: nested more than 100 levels deep$"):
            parse_json(head * depth + "1" + tail * depth, "f")


# Writing.


def test_a_file_is_replaced_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "new" / "r.json"
    write_whole(str(path), "one")
    path.chmod(0o600)
    write_whole(str(path), b"two")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("two", 0o600)
    assert [item.name for item in path.parent.iterdir()] == ["r.json"]


@needs_nodes
def test_a_device_stays_a_device(tmp_path: Path) -> None:
    path = tmp_path / "null"
    make_device(path)
    write_whole(str(path), "gone")
    append_text(str(path), "gone")
    assert path.is_char_device()
    assert [item.name for item in tmp_path.iterdir()] == ["null"]


@needs_nodes
@pytest.mark.parametrize("write", [write_whole, append_text])
def test_a_fifo_gets_the_text_where_a_process_reads_it(write: Callable[[str, str], None], tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    with pytest.raises(OSError, match=r"fifo: not written: a named pipe \(FIFO\) that no process reads$"):
        write(str(path), "text")
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    text = "x" * 1_000_000  # more than a pipe holds
    writer = threading.Thread(target=write, args=(str(path), text), daemon=True)
    writer.start()
    size, deadline = 0, time.monotonic() + 60
    while size < len(text) and time.monotonic() < deadline:
        try:
            size += len(os.read(reading, 65536))  # empty before the writer is there
        except BlockingIOError:
            time.sleep(0.001)
    writer.join(60)
    os.close(reading)
    assert size == len(text)
    assert path.is_fifo()


@needs_nodes
def test_a_socket_a_folder_and_a_link_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_socket(tmp_path / "socket")
    (tmp_path / "folder").mkdir()
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "link").symlink_to("mine")
    (tmp_path / "dangling").symlink_to("nowhere")
    before = sorted(tmp_path.iterdir())
    for name, kind in (
        ("socket", "a socket"),
        ("folder", "a directory"),
        ("link", "a symbolic link"),
        ("dangling", "a symbolic link"),
    ):
        with pytest.raises(OSError, match=f"^{name}: not written: {kind}, which is not overwritten$"):
            write_whole(name, "text")
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_descriptor_of_the_shell_is_written_to() -> None:
    ours, theirs = os.pipe()
    write_whole(f"/dev/fd/{theirs}", "text")  # what >(command) becomes
    os.close(theirs)
    assert os.read(ours, 100) == b"text"
    os.close(ours)


def test_what_a_killed_writer_left_is_removed_by_a_later_one(tmp_path: Path) -> None:
    old, new, others = ".0123456789abcdef.roofline-tmp", ".fedcba9876543210.roofline-tmp", "r.json.01234567.tmp"
    for name in (old, new, others):
        (tmp_path / name).write_text("part")
    hours_ago = time.time() - 2 * 3600
    for name in (old, others):
        os.utime(tmp_path / name, (hours_ago, hours_ago))
    write_whole(str(tmp_path / "r.json"), "{}")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([new, others, "r.json"])


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.txt: No such file"):
        read_text(str(tmp_path / "none.txt"))
    with pytest.raises(ValueError, match="a directory, expected a regular file"):
        read_text(str(tmp_path))


def test_a_table_begins_at_its_header_and_its_odd_rows_are_named() -> None:
    text = "==PROF== connected\nName,Calls\n==PROF== 50%\na,1\n\nb\nc,2\n"
    table = read_table(decode_text(text.encode(), "f.csv"), "f.csv", lambda header: "Name" in header)
    assert table.header == ("Name", "Calls")
    assert table.rows == ((4, ("a", "1")), (7, ("c", "2")))
    assert table.problems == ("f.csv: line 6 has 1 cells, expected 2: left out",)
    assert (table.column("Count", "Calls"), table.column("Time")) == (1, None)
    with pytest.raises(ValueError, match=r"f\.csv: no line is a header"):
        read_table("x,y\n", "f.csv", lambda header: "Name" in header)

"""The one reader of text, tables and JSON: encodings, gzip, bounds, and what a message names."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path

import pytest

from roofline_engine.files import decode_text, read_bytes, read_json, read_table, read_text

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
    with pytest.raises(ValueError, match=r"bomb\.json: larger than 1 MiB when unpacked$"):
        read_bytes(str(path), 2**20)
    with pytest.raises(ValueError, match=r"bomb\.json: larger than 0 MiB$"):
        read_bytes(str(path), 100)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"{\xff}", "not UTF-8 text (byte 1)"),
        (b"\xff\xfe{\x00\x00", "not UTF-16 text (byte 4)"),
        (b"\x1f\x8bnot packed", "Unknown compression method"),
        (gzip.compress(b"{}", mtime=0)[:-4], "Compressed file ended before the end-of-stream marker"),
        (b'{"a": 1,}', "not JSON: line 1 column"),
        (b"[" * 100_000, "nested too deep to read"),
        (b"1" * 5000, "Exceeds the limit"),
    ],
)
def test_what_cannot_be_read_is_one_line_that_names_the_file(raw: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "in\x1b.json"
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=r"in\\x1b\.json: ") as caught:
        read_json(str(path))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("raw", [b"{}", gzip.compress(b"{}")], ids=["plain", "packed"])
def test_a_pipe_gives_its_bytes_once(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(raw,), daemon=True)
    writer.start()
    assert read_json(str(path)) == {}
    writer.join()


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.txt: No such file"):
        read_text(str(tmp_path / "none.txt"))
    with pytest.raises(ValueError, match="Is a directory"):
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

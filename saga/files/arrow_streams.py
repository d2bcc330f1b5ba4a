"""Whether an Arrow stream is whole: its readers take the end of the bytes for that of the table."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.ipc


def is_whole_stream(source: pa.NativeFile) -> bool:
    """Whether a stream has the mark of its end, and nothing after it.

    Reads `source` to the end. Raises errors of pyarrow if it is no Arrow stream.
    """
    pa.ipc.open_stream(source)  # reads the schema
    end_of_messages = source.tell()
    for _ in pa.ipc.MessageReader.open_stream(source):
        end_of_messages = source.tell()
    return bool(end_of_messages < source.tell() == source.size())

"""Arrow tables of data frames, and whether an Arrow stream is whole.

Readers of a stream take the end of its bytes for that of the table.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.ipc


def to_arrow(frame: object) -> pa.Table:
    """The Arrow table of a data frame; a named index of pandas becomes columns.

    Raises errors of pyarrow, which repeat cells, if a column mixes types.
    """
    if not hasattr(frame, "set_index"):
        return pa.table(frame)
    table = pa.Table.from_pandas(frame, preserve_index=True)  # else consecutive years are lost
    unnamed = [name for name in table.column_names if name.startswith("__index_level_")]
    return table.drop_columns(unnamed)


def is_whole_stream(source: pa.NativeFile) -> bool:
    """Whether a stream has the mark of its end, and nothing after it.

    Reads `source` to the end. Raises errors of pyarrow if it is no Arrow stream.
    """
    pa.ipc.open_stream(source)  # reads the schema
    end_of_messages = source.tell()
    for _ in pa.ipc.MessageReader.open_stream(source):
        end_of_messages = source.tell()
    return bool(end_of_messages < source.tell() == source.size())

"""What is in a file of UTF-8, and where it is not UTF-8."""

import pathlib

BOM = b"\xef\xbb\xbf"
UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def read_bytes(path):
    """What is in a file, without the mark that some write before UTF-8.

    Returns:
        `(bytes, offset)`, where the offset is the number of bytes removed.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is a folder, or in UTF-16.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        raise ValueError(f"This is a folder, not a file: {path}")
    if not path.exists():
        raise FileNotFoundError(f"There is no such file: {path}")
    data = path.read_bytes()
    if data.startswith(UTF_16):
        raise ValueError(
            f"{path} is in UTF-16. Save it in UTF-8, which is what is read "
            f"here. Received: a file that begins with the bytes {data[:2]!r}"
        )
    if data.startswith(BOM):
        return data[len(BOM) :], len(BOM)
    return data, 0


def read_text(path):
    """The text in a file.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not UTF-8; the message has the file, the line and
            the byte.
    """
    data, offset = read_bytes(path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise not_utf_8(path, line, error, offset) from error


def not_utf_8(path, line, error, offset):
    """What to raise for a `UnicodeDecodeError` in a line of a file."""
    return ValueError(
        f"{path} is not UTF-8: line {line}, byte {offset + error.start} of "
        f"the file, counted from 0. Save it in UTF-8. Received: the byte "
        f"0x{error.object[error.start]:02x} ({error.reason})"
    )

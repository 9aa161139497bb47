"""The names of a certificate: its subject as Java writes it, and its alternative names.

The subject is RFC 2253, the most specific part first.

Only as much of DER is read as lies on the way to the subject. Attributes without a name of two
letters are shown by their number and their bytes, as Java does.
"""

from typing import Final

_CONTEXT_0: Final = 0xA0
_CONTEXT_3: Final = 0xA3
_ALTERNATIVE_NAMES: Final = "2.5.29.17"
_BMP_STRING: Final = 0x1E
_UNIVERSAL_STRING: Final = 0x1C
_LATIN: Final = frozenset({0x14})
_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.6": "C",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_SPECIAL: Final = frozenset(',+"\\<>;=')


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER: `CN=alice,OU=b,O=c`.

    Raises:
        ValueError: it is no certificate.
    """
    try:
        fields = _fields(certificate)
        begin = 1 if fields[0][0] == _CONTEXT_0 else 0  # the version, which old ones lack
        # serial number, algorithm, issuer, validity, subject
        relative_names = _children(fields[begin + 4][1])
        return ",".join(_relative_name(each[1]) for each in reversed(relative_names))
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("this is no certificate") from error


def alternative_names_of(certificate: bytes) -> frozenset[bytes]:
    """The alternative names of a certificate in DER, each as it is encoded there.

    Raises:
        ValueError: it is no certificate.
    """
    try:
        extensions = [value for tag, value, _ in _fields(certificate) if tag == _CONTEXT_3]
        for _, extension, _ in _children(_children(extensions[0])[0][1]) if extensions else ():
            (_, oid, _), *_, (_, value, _) = _children(extension)
            if _object_id(oid) == _ALTERNATIVE_NAMES:
                return frozenset(whole for *_, whole in _children(_children(value)[0][1]))
    except (IndexError, ValueError) as error:
        raise ValueError("this is no certificate") from error
    return frozenset()


def _fields(certificate: bytes) -> list[tuple[int, bytes, bytes]]:
    return _children(_children(_children(certificate)[0][1])[0][1])


def _relative_name(encoded: bytes) -> str:
    return "+".join(_attribute(each[1]) for each in _children(encoded))


def _attribute(encoded: bytes) -> str:
    (_, oid, _), (tag, value, whole) = _children(encoded)
    number = _object_id(oid)
    name = _NAMES.get(number)
    if name is None:
        return f"{number}=#{whole.hex()}"
    return f"{name}={_escaped(_text(tag, value))}"


def _text(tag: int, value: bytes) -> str:
    if tag == _BMP_STRING:
        return value.decode("utf-16-be")
    if tag == _UNIVERSAL_STRING:
        return value.decode("utf-32-be")
    return value.decode("latin-1" if tag in _LATIN else "utf-8")


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{each}" if each in _SPECIAL else each for each in text)
    if text.startswith((" ", "#")):
        escaped = f"\\{escaped}"
    if text.endswith(" ") and len(text) > 1:
        escaped = f"{escaped[:-1]}\\ "
    return escaped


def _object_id(encoded: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in encoded:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _children(encoded: bytes) -> list[tuple[int, bytes, bytes]]:
    """The elements of a sequence: tag, content, and all of it."""
    found = []
    position = 0
    while position < len(encoded):
        begin = position
        tag, length = encoded[position], encoded[position + 1]
        position += 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(encoded[position : position + count], "big")
            position += count
        end = position + length
        if end > len(encoded):
            raise IndexError("an element is longer than the one around it")
        found.append((tag, encoded[position:end], encoded[begin:end]))
        position = end
    return found

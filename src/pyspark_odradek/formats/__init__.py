"""The formats of a value: JSON, Avro and Protobuf, with and without the prefix of a schema
registry.

Needs no package and no jar. A decoder is made on the driver from a schema (`decoder_for`), knows
the type of its column, and is sent to the workers, where it turns bytes into rows.
"""

from pyspark_odradek.formats.errors import Undecodable, UnusableSchema
from pyspark_odradek.formats.registry import SCHEMA_FILES, Registry, RegistryUnavailable
from pyspark_odradek.formats.values import FORMATS, Decoder, decoder_for

__all__ = [
    "FORMATS",
    "SCHEMA_FILES",
    "Decoder",
    "Registry",
    "RegistryUnavailable",
    "Undecodable",
    "UnusableSchema",
    "decoder_for",
]

"""Convert features to JSON values, arrays and tables for storage, and back, checking every part."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._fork import require_polars_threads
from shortlist._kernel_views import for_kernels
from shortlist.data.features.categorical import ValuesField
from shortlist.data.features.feature_fields import Field
from shortlist.data.features.numeric import NumericField
from shortlist.data.mapped_ids import MappedIds, frame_of
from shortlist.data.sparse_rows import SparseRows, csr_error
from shortlist.data.vocabulary import Vocabulary
from shortlist.errors import ShortlistError, StorageError

_FIELDS = {"field": pl.String()}
_VALUES = {"field": pl.Int32(), "value": pl.String(), "column": pl.Int32(), "count": pl.Int64()}


class FeatureParts(NamedTuple):
    """Features as the parts of a `StoredModel`.

    Attributes:
        settings: JSON values.
        arrays: the matrix: `indptr`, `indices` and `values`.
        tables: `ids`; `fields`, with one line of JSON per field (there may be too many fields for the settings); and
            `values`, the values of all fields.
    """

    settings: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]
    tables: dict[str, pl.DataFrame]


def to_feature_parts(
    vocabulary: Vocabulary, fields: Sequence[Field], rows: SparseRows, from_text: bool, prefix: str
) -> FeatureParts:
    """Split features into parts; names of arrays and tables begin with `prefix`."""
    require_polars_threads("storing features")
    lines: list[str] = []
    values = [pl.DataFrame(schema=_VALUES)]
    for number, field in enumerate(fields):
        settings: dict[str, Any] = {"name": field.name, "kind": field.kind}
        if isinstance(field, NumericField):
            settings |= {"scale": field.scale, "mean": field.mean, "std": field.std}
        elif isinstance(field, ValuesField):
            settings |= {"n_rare": field.n_rare, "separator": field.separator, "normalize": field.normalize}
            values.append(field.values.select(pl.lit(number, pl.Int32).alias("field"), "value", "column", "count"))
        lines.append(json.dumps(settings))
    assert rows.values is not None
    return FeatureParts(
        {"from_text": from_text},
        {f"{prefix}indptr": rows.indptr, f"{prefix}indices": rows.indices, f"{prefix}values": rows.values},
        {
            f"{prefix}ids": vocabulary.frame,
            f"{prefix}fields": pl.DataFrame({"field": lines}, schema=_FIELDS),
            f"{prefix}values": pl.concat(values),
        },
    )


def from_feature_parts(
    settings: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    tables: Mapping[str, pl.DataFrame | MappedIds],
    prefix: str,
) -> tuple[Vocabulary, list[Field], SparseRows, bool]:
    """Restore features from their parts; raise StorageError if a part is missing or broken."""
    require_polars_threads("restoring features")
    for what, stored, names in (
        ("array", arrays, ("indptr", "indices", "values")),
        ("table", tables, ("ids", "values") if "fields" in settings else ("ids", "fields", "values")),
    ):
        for name in names:
            if prefix + name not in stored:
                raise StorageError(f"the features have no {what} {prefix + name!r}", code="model-damaged")
    frames = {name.removeprefix(prefix): frame_of(table) for name, table in tables.items() if name.startswith(prefix)}
    try:
        vocabulary = Vocabulary(frames["ids"])
        if repeats := len(vocabulary) - vocabulary.frame.n_unique():
            raise ValueError(f"{repeats:,} ids are repeated")
        if "fields" in settings:  # older models store the fields in the settings
            lines = [json.dumps(field) for field in _typed(settings["fields"], list, "fields")]
            field_table = pl.DataFrame({"field": lines}, schema=_FIELDS)
        else:
            field_table = frames["fields"]
        fields = _fields(field_table, frames["values"])
        from_text = _typed(settings["from_text"], bool, "from_text")
    except KeyError as error:
        raise StorageError(f"the settings of the features have no {error}", code="model-damaged") from None
    except (TypeError, ValueError, OverflowError, RecursionError, ShortlistError) as error:
        raise StorageError(f"the features cannot be used: {error}", code="model-damaged") from error
    width = sum(field.n_columns for field in fields)
    indptr, indices, values = (for_kernels(arrays[prefix + name]) for name in ("indptr", "indices", "values"))
    rows = SparseRows(indptr, indices, values, width)
    if problem := csr_error(rows, len(vocabulary)):
        raise StorageError(f"the matrix of the features cannot be used: {problem}", code="model-damaged")
    return vocabulary, fields, rows, from_text


def _fields(field_table: pl.DataFrame, values: pl.DataFrame) -> list[Field]:
    for what, table, schema in (("fields", field_table, _FIELDS), ("values", values, _VALUES)):
        if dict(table.schema) != schema:
            raise ValueError(f"the table of {what} has the columns {dict(table.schema)}; expected {schema}")
    no_values = values.clear().drop("field")
    values_by_field = values.partition_by("field", as_dict=True, include_key=False)
    fields: list[Field] = []
    for number, line in enumerate(field_table["field"]):
        settings = _typed(json.loads(line), dict, "a field")
        name, kind = _typed(settings["name"], str, "name"), settings["kind"]
        field_values = values_by_field.get((number,), no_values)
        if kind == "numeric":
            mean, std = (float(_typed(settings[key], float | int, key)) for key in ("mean", "std"))
            scale = settings["scale"]
            if scale not in ("standard", "log", "raw") or not (math.isfinite(mean) and 0 < std < math.inf):
                raise ValueError(f"numeric field {name!r} has scale {scale!r}, mean {mean}, std {std}")
            if field_values.height:
                raise ValueError(f"numeric field {name!r} has {field_values.height:,} values; expected none")
            fields.append(NumericField(name=name, scale=scale, mean=mean, std=std))
        elif kind in ("categorical", "multi_valued"):
            fields.append(_values_field(name, kind == "multi_valued", settings, field_values))
        else:
            raise ValueError(f"field {name!r} has unknown type {kind!r:.40}")
    names = [field.name for field in fields]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"the fields are called {names!r:.200}; expected one or more different names")
    if values.height and not 0 <= values["field"].min() <= values["field"].max() < len(fields):  # type: ignore[operator]
        raise ValueError(f"the table of values has field numbers outside 0 … {len(fields) - 1}")
    return fields


def _values_field(name: str, many: bool, settings: dict[str, Any], values: pl.DataFrame) -> ValuesField:
    n_rare, separator, normalize = settings["n_rare"], settings["separator"], settings["normalize"]
    if separator is not None and not _typed(separator, str, "separator"):
        raise ValueError(f"the separator of field {name!r} is empty")
    if normalize not in (("sum", "norm", None) if many else (None,)):
        raise ValueError(f"field {name!r} has unknown normalize {normalize!r:.40}")
    columns, n_values = values["column"].to_numpy(), values.height - _typed(n_rare, int, "n_rare")
    rare = columns == n_values
    good = 0 <= n_rare <= values.height and rare.sum() == n_rare and np.array_equal(columns[~rare], np.arange(n_values))
    if not good or values["value"].n_unique() < values.height or (values["count"] < 1).any():
        raise ValueError(
            f"the {values.height:,} values of field {name!r}, {n_rare!r} of them rare, do not match its columns"
        )
    return ValuesField(name=name, values=values, n_rare=n_rare, many=many, separator=separator, normalize=normalize)


def _typed(value: Any, expected: Any, what: str) -> Any:
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        raise ValueError(f"{what} is {value!r:.80}; expected {getattr(expected, '__name__', expected)}")
    return value

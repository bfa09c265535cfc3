"""A model as an ONNX graph: cells of a table in, one input for each column, and what ``predict`` says out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.data_tools import predict_tables as cells
from fastadmm.data_tools.encoding import encoder_of
from fastadmm.errors import ConfigError
from fastadmm.files.atomic import write_whole
from fastadmm.problem.convex_losses import Logistic
from fastadmm.problem.log_link_losses import Poisson
from fastadmm.problem.loss import Loss
from fastadmm.problem.losses import parse_loss
from fastadmm.problem.multinomial import Multinomial
from fastadmm.store.encoder import ColumnEncoding
from fastadmm.store.model import Model, PartyModel

#: Versions of the operators, by domain; runtimes since 2024 know them.
_OPSETS = {"": 20, "ai.onnx.ml": 2}

#: Operator of each inverse link.
_MEANS: dict[Any, str] = {
    Loss.predict_mean: "Identity",
    Logistic.predict_mean: "Sigmoid",
    Multinomial.predict_mean: "Softmax",
    Poisson.predict_mean: "Exp",
}


def write_onnx(out: Path, model: Model, *, force: bool = False) -> None:
    """Write a model as ONNX, in double precision."""
    try:
        import onnx
    except Exception as error:  # protobuf refuses a runtime older than the one onnx was made with
        said = f"onnx is missing or cannot be used ({error}): pip install 'fastadmm[export]', or choose .json"
        raise ConfigError(f"export: {said}") from None
    content = _Graph(onnx, model).finished().SerializeToString()
    write_whole(out, content, force=force, shared=True)


class _Graph:
    """The graph while it grows; what a method adds is known by the name that it returns."""

    def __init__(self, onnx: Any, model: Model) -> None:
        self._onnx, self._model = onnx, model
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._names = cells.input_names(model.parties)
        self._taken = {name for names in self._names for name in names}

    def _new(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def _add(self, kind: str, *inputs: Any, output: str = "", **attributes: Any) -> str:
        """Add an operator; what is no name among its inputs becomes a constant."""
        names = [own if isinstance(own, str) else self._constant(own) for own in inputs]
        output = self._new(output or f"{kind} {len(self._nodes)}")
        domain = "ai.onnx.ml" if kind == "LabelEncoder" else ""
        node = self._onnx.helper.make_node(kind, names, [output], domain=domain, **attributes)
        self._nodes.append(node)
        return output

    def _constant(self, values: Any) -> str:
        name = self._new(f"constant {len(self._constants)}")
        array = np.asarray(values)
        if array.dtype.kind == "f":
            array = array.astype(np.float64)
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def _cast(self, name: str, kind: str) -> str:
        return self._add("Cast", name, to=getattr(self._onnx.TensorProto, kind))

    def finished(self) -> Any:
        """The whole graph."""
        model, helper = self._model, self._onnx.helper
        z: Any = np.atleast_2d(np.asarray(model.intercept, dtype=np.float64))
        for party, names in zip(model.parties, self._names, strict=True):
            encoder = encoder_of(party)
            columns = zip(names, encoder.columns, strict=True)
            features = [self._column(party.name, *own, encoder.missing) for own in columns]
            X = self._transformed(party, self._add("Concat", *features, axis=1))
            own = self._add("MatMul", X, party.weights.reshape(len(party.weights), -1))
            z = self._add("Add", z, self._add("Mul", own, party.scale))
        # Zero times infinity: a score that overflows is none.
        outputs = self._outputs(self._add("Add", z, self._add("Mul", z, 0.0)))
        graph = helper.make_graph(self._nodes, "fastadmm", self._inputs, outputs, self._constants)
        opsets = [helper.make_opsetid(domain, version) for domain, version in _OPSETS.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9, producer_name="fastadmm")

    def _column(self, party: str, name: str, column: ColumnEncoding, missing: str) -> str:
        """Features of one column, and its input."""
        cells.check_readable(column, party)
        text, kinds = cells.is_text(column), self._onnx.TensorProto
        info = self._onnx.helper.make_tensor_value_info
        self._inputs.append(info(name, kinds.STRING if text else kinds.DOUBLE, ["N", 1]))
        if column.levels is not None:
            return self._category(name, column, missing)
        if text:
            dates = cells.dates_of(column)
            place = self._codes(name, {date: i for i, date in enumerate(dates)}, len(dates))
            # What is no date becomes infinite, and so no score.
            name = self._add("Gather", [*dates.values(), math.inf], place)
        return self._number(name, column, missing)

    def _codes(self, name: str, codes: dict[str, int], otherwise: int) -> str:
        return self._add(
            "LabelEncoder", name, keys_strings=list(codes), values_int64s=list(codes.values()),
            default_int64=otherwise,
        )  # fmt: skip

    def _number(self, x: str, column: ColumnEncoding, missing: str) -> str:
        for number in cells.na_numbers(column):
            x = self._add("Where", self._add("Equal", x, number), math.nan, x)
        bins, absent = column.bins, self._add("IsNaN", x)
        known = bins is not None and bins.knows_missing
        if known or missing != "refuse":
            x = self._add("Where", absent, column.fill, x)
        feature = x
        if bins is not None:
            # At the end an edge that no number is above, so that there is one.
            above = self._cast(self._add("Less", [[*bins.edges, math.inf]], x), "INT64")
            place = self._add("ReduceSum", above, np.array([1]), keepdims=1)
            if known:
                place = self._add("Where", absent, bins.count, place)
            feature = self._add("Gather", list(bins.woe), place)
        elif column.low < column.high:
            clipped = self._add("Clip", x, column.low, column.high)
            part = self._add("Div", self._add("Sub", clipped, column.low), column.high - column.low)
            feature = self._add("Sub", self._add("Mul", part, 2.0), 1.0)
        if feature != x:  # infinite and refused numbers
            feature = self._add("Add", feature, self._add("Mul", x, 0.0))
        if not column.indicator:
            return feature
        return self._add("Concat", feature, self._cast(absent, "DOUBLE"), axis=1)

    def _category(self, name: str, column: ColumnEncoding, missing: str) -> str:
        count = len(column.levels or ())
        unseen = count + 1
        code = self._codes(name, cells.codes_of(column), unseen)
        odd = self._add("RegexFullMatch", name, pattern=cells.OTHERWISE_WRITTEN)
        refused = self._add("And", odd, self._add("Equal", code, unseen))
        if column.bins is not None:
            features = self._add("Gather", cells.evidence_of(column, missing), code)
        else:
            if missing == "refuse":
                refused = self._add("Or", refused, self._add("Equal", code, count))
            for found, stands in ((count, column.fill_level), (unseen, column.other)):
                if stands >= 0:
                    code = self._add("Where", self._add("Equal", code, found), stands, code)
            # The number behind those of the categories is that of missing cells.
            features = self._cast(
                self._add("Equal", code, np.arange(count + column.indicator)[np.newaxis]), "DOUBLE"
            )
        return self._add("Where", refused, math.nan, features)

    def _transformed(self, party: PartyModel, X: str) -> str:
        """Centre, scale, norm and clip, in the order of training."""
        transform = party.transform
        for kind, values in (("Sub", transform.center), ("Div", transform.scale)):
            X = X if values is None else self._add(kind, X, values)
        if transform.normalize == "l2":
            X = self._add("Div", X, self._or_one(self._norms(X)))
        if party.clipped:
            X = self._add("Div", X, self._add("Max", self._norms(X), 1.0))
        return X

    def _norms(self, X: str) -> str:
        """Norms of the rows, by squares that neither overflow nor vanish."""
        safe = self._or_one(self._add("ReduceMax", self._add("Abs", X), np.array([1]), keepdims=1))
        part = self._add("Div", X, safe)
        squares = self._add("ReduceSum", self._add("Mul", part, part), np.array([1]), keepdims=1)
        return self._add("Mul", self._add("Sqrt", squares), safe)

    def _or_one(self, x: str) -> str:
        return self._add("Where", self._add("Greater", x, 0.0), x, 1.0)

    def _outputs(self, z: str) -> list[Any]:
        """What ``predict`` writes, under the same names."""
        kinds, model, loss = self._onnx.TensorProto, self._model, parse_loss(self._model.loss)
        wide, classes = np.ndim(model.intercept) > 0, model.classes
        known = list(classes or ()) if model.task == "classification" else []
        scores = z if wide else self._add("Squeeze", z, np.array([1]))
        found = {"score": (self._add("Identity", scores, output="score"), kinds.DOUBLE)}
        if not known or loss.probabilistic:
            means, name = _MEANS[type(loss).predict_mean], "probability" if known else "prediction"
            more = {"axis": 1} if means == "Softmax" else {}
            found[name] = self._add(means, scores, output=name, **more), kinds.DOUBLE
        if known:
            total = scores
            if wide:
                place = self._add("ArgMax", scores, axis=1, keepdims=0)
                total = self._add("ReduceSum", scores, np.array([1]), keepdims=0)
            else:
                place = self._cast(self._add("Greater", scores, 0.0), "INT64")
            place = self._add("Where", self._add("IsNaN", total), len(known), place)
            names = np.array([*known, ""], dtype=object)
            found["label"] = self._add("Gather", names, place, output="label"), kinds.STRING
        info = self._onnx.helper.make_tensor_value_info
        return [
            info(name, kind, ["N", len(classes or ())] if wide and own != "label" else ["N"])
            for own, (name, kind) in found.items()
        ]

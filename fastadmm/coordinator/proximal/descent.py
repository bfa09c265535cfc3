from __future__ import annotations
import math, os
from dataclasses import replace
import numpy as np
from fastadmm.coordinator.proximal.proximal import ProximalMethod
from fastadmm.coordinator.stationarity import Progress, intercept_part, start_point

STARTS = int(os.environ.get("NC_START", "0"))

class DescentProximalMethod(ProximalMethod):
    def __init__(self, problem, engine, directions=None):
        super().__init__(problem, engine, directions)
        self.progress = Progress()
        self.coordinator.curvature = problem.loss.gradient_lipschitz
        self.starting = bool(STARTS)

    def _opened(self):
        c = self.coordinator
        start = start_point(self.problem, self.engine)
        if self.starting:
            c.problem = replace(self.problem, loss=self.problem.loss.convex_start())
        else:
            c.model.intercept = start.intercept
        c.evaluate()
        self.at_start = start.loss
        return start.loss

    def round(self):
        c, problem = self.coordinator, self.problem
        answers = yield from c.round()
        squared = sum(answer.squared for answer in answers)
        squared += intercept_part(problem, c.sent, self.engine)
        st = self.progress.relative(squared)
        if self.starting:
            from fastadmm.method.penalised_bound import bound_from_shares
            primal = c.primal_of(c.problem, c.model)
            value = primal.loss + sum(float(p) for p in c.penalties)
            self.bound = max(self.bound, bound_from_shares(c.problem, c.sent, [a.dual for a in answers], self.engine))
            c.gap = max(value - self.bound, 0.0)
            st = 1.0
            if c.gap <= 1e-2 * value or c.n_rounds >= 15:
                c.problem, self.starting = problem, False
                c.shared.known = None if hasattr(c.shared, "known") else None
                c.gap = math.inf
                self._ended = c.n_rounds
            primal = c.primal_of(problem, c.model, c.model.intercept)
        else:
            primal = c.primal_of(problem, c.model)
            c.gap = self.at_start * st * st
        self._intercept = primal.intercept
        objective = primal.loss + sum(float(p) for p in c.penalties)
        if c.problem is problem and getattr(self, "_ended", None) == c.n_rounds:
            c._ahead = None; c._own_faces = []
        yield from c.propose()
        return self._measured(objective, -math.inf, squared, squared, stationarity=st)

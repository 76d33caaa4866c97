"""Linear programmes over polytopes ``{x >= 0, M x = M a}``, many at once: the simplex method in torch.

A point of the polytope is known (a), so no first phase is needed: the search moves from it to a vertex without lowering
the objective, then from vertex to vertex while that raises it (Dantzig 1963). look/compute/alternative_attention.py
calls it.

    x_B + D x_N = constant          B basic, N non-basic variables; D = (M_B)^-1 M_N, the condensed tableau
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

PIVOT_TOLERANCE = 1e-9
"""The least entry to pivot on, and the least reduced cost that counts as positive."""

MAX_PIVOTS_PER_VARIABLE = 10
"""Pivots per variable after which a search stops where it is, at a vertex that may not be the best."""


class SimplexTableau:
    """The condensed tableaus of N programmes with the same numbers of variables and constraints, in float64."""

    def __init__(self, constraints: Float[Tensor, "N m K"], start: Float[Tensor, "N K"]) -> None:
        n_constraints = constraints.shape[1]
        # Partial pivoting picks basic variables that make a well-conditioned basis.
        permutation, lower, _ = torch.linalg.lu(constraints.mT)
        order = permutation.argmax(-2)  # (N, K)
        upper_part, lower_part = lower[:, :n_constraints], lower[:, n_constraints:]
        solved = torch.linalg.solve_triangular(upper_part, lower_part, upper=False, unitriangular=True, left=False)
        self.table: Float[Tensor, "N m n"] = solved.mT.contiguous()
        self.basic: Int[Tensor, "N m"] = order[:, :n_constraints].contiguous()
        self.nonbasic: Int[Tensor, "N n"] = order[:, n_constraints:].contiguous()
        self.x: Float[Tensor, "N K"] = start.clone()
        self._constraints, self._right_hand_side = constraints, (constraints @ start[:, :, None])[:, :, 0]

    def maximise(self, objective: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
        """Return a vertex at which the objective is largest, from the current point on."""
        for column in range(self.table.shape[2]):
            self._remove_superbasic(objective, column)
        for _ in range(MAX_PIVOTS_PER_VARIABLE * self.x.shape[1]):
            cost, entering = self._reduced_costs(objective).max(1)
            improving = (cost > PIVOT_TOLERANCE).nonzero()[:, 0]
            if not len(improving):
                break
            self._enter(improving, entering[improving], torch.ones_like(cost[improving]))
        return self._solve_basic()

    def _reduced_costs(self, objective: Float[Tensor, "N K"]) -> Float[Tensor, "N n"]:
        basic_cost = objective.gather(1, self.basic)
        return objective.gather(1, self.nonbasic) - (basic_cost[:, None] @ self.table)[:, 0]

    def _remove_superbasic(self, objective: Float[Tensor, "N K"], column: int) -> None:
        """Move a non-basic variable that is not 0 in the better direction, until it or a basic variable is 0."""
        variable = self.nonbasic[:, column]
        value = self.x.gather(1, variable[:, None])[:, 0]
        moving = (value > 0).nonzero()[:, 0]
        basic_cost = objective.gather(1, self.basic)
        cost = objective.gather(1, variable[:, None])[:, 0] - (basic_cost * self.table[:, :, column]).sum(1)
        direction = torch.where(cost > 0, 1.0, -1.0).to(cost)
        self._enter(moving, torch.full_like(moving, column), direction[moving])

    def _enter(self, rows: Int[Tensor, " R"], column: Int[Tensor, " R"], direction: Float[Tensor, " R"]) -> None:
        """Move one non-basic variable of each row as far as all stay non-negative; pivot where a basic one stops it."""
        slope = self.table[rows, :, column] * direction[:, None]  # basic variables fall by this
        basic, entering = self.basic[rows], self.nonbasic[rows, column]
        levels = self.x[rows[:, None], basic]
        steps = torch.where(slope > PIVOT_TOLERANCE, levels / slope.clamp(min=PIVOT_TOLERANCE), torch.inf)
        step, leaving = steps.min(1)
        own = torch.where(direction < 0, self.x[rows, entering], torch.inf)
        pivots = step <= own
        step = torch.minimum(step, own)
        step = torch.where(step.isfinite(), step, 0.0)  # a bounded polytope has a limit; rounding may hide it
        self.x[rows[:, None], basic] = (levels - step[:, None] * slope).clamp(min=0.0)
        self.x[rows, entering] = (self.x[rows, entering] + direction * step).clamp(min=0.0)
        self._pivot(rows, column, leaving, pivots & steps.isfinite().any(1))

    def _pivot(
        self, rows: Int[Tensor, " R"], column: Int[Tensor, " R"], leaving: Int[Tensor, " R"], chosen: Bool[Tensor, " R"]
    ) -> None:
        """Exchange an entering and a leaving variable in the chosen rows."""
        rows, column, leaving = rows[chosen], column[chosen], leaving[chosen]
        down, across = self.table[rows, :, column], self.table[rows, leaving]  # (R, m), (R, n)
        pivot = self.table[rows, leaving, column][:, None]
        each = torch.arange(len(rows), device=rows.device)
        changed = self.table[rows] - down[:, :, None] * (across / pivot)[:, None]
        changed[each, leaving] = across / pivot
        changed[each, :, column] = -down / pivot
        changed[each, leaving, column] = 1 / pivot[:, 0]
        self.table[rows] = changed
        entering, left = self.nonbasic[rows, column], self.basic[rows, leaving]
        self.x[rows, left] = 0.0
        self.nonbasic[rows, column], self.basic[rows, leaving] = left, entering

    def _solve_basic(self) -> Float[Tensor, "N K"]:
        """Solve for the basic variables once more, so that no rounding of the pivots remains."""
        basis = self._constraints.gather(2, self.basic[:, None].expand(-1, self._constraints.shape[1], -1))
        level = torch.linalg.solve(basis, self._right_hand_side)
        self.x = torch.zeros_like(self.x).scatter(1, self.basic, level.clamp(min=0.0))
        return self.x

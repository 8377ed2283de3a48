"""Where many allocations are optimal: the one in the middle, which the released code's solver (ECOS) settles on.

Max-min fairness, makespan and finish-time fairness leave most jobs some freedom. A simplex method returns a
corner; an interior-point method started in the middle returns a smooth point far from all bounds, and the rounds
differ by that. This is the method ECOS implements: the homogeneous self-dual embedding with Nesterov-Todd scaling
and Mehrotra's predictor-corrector (Domahidi, Chu, Boyd: ECOS, ECC 2013; Vandenberghe: The CVXOPT linear and
quadratic cone program solvers, 2010), written for the one structure allocations have: every constraint but the
GPUs of a type concerns one job, so that a step costs a small inverse per job and one small dense system.

    minimise c'v   so that   G v + s = h,   s in the cone
    v = (one block per job, and t);  rows = (one group per job; one per GPU type that joins the jobs)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dally.core.records import dataclass

Floats = NDArray[np.float64]

_ROUNDS = 100
_TOLERANCE = 1e-8
_STEP = 0.99  # of the way to the boundary of the cone
_REGULARISED = 1e-13
_REFINEMENTS = 5


@dataclass(slots=True)
class Blocks:
    """The program. `local[i]` are the rows of job i over its own variables, `on_t[i]` the same rows' factor of t; the
    last `cone` rows of each group form one second-order cone, the others are inequalities."""

    local: Floats  # jobs × rows × variables
    on_t: Floats  # jobs × rows
    bound: Floats  # jobs × rows
    joint: Floats  # jobs × variables × types: GPUs each variable takes of each type
    gpus: Floats  # types
    cost: Floats  # jobs × variables
    cost_t: float  # 0 and unused where no row has a factor of t
    cone: int = 0


class _Point:
    """One vector of the dual space: a part per job and a part per GPU type."""

    __slots__ = ("joint", "local")

    def __init__(self, local: Floats, joint: Floats) -> None:
        self.local, self.joint = local, joint

    def dot(self, other: _Point) -> float:
        return float((self.local * other.local).sum() + (self.joint * other.joint).sum())

    def norm(self) -> float:
        return float(np.sqrt(self.dot(self)))


def solve(program: Blocks) -> Floats | None:
    """The variables of every job at the central optimum; None where the program has no solution."""
    with np.errstate(all="ignore"):  # near the end rounding may leave the cone: noticed, and the best point kept
        return _Solver(program).run()


class _Solver:
    def __init__(self, program: Blocks) -> None:
        self.cone = program.cone
        self.with_t = bool(np.any(program.on_t))
        self.local, self.on_t, self.joint = program.local.copy(), program.on_t.copy(), program.joint.copy()
        jobs, rows, _ = self.local.shape
        self.linear = rows - self.cone
        self._equilibrate()
        self.h = _Point(program.bound / self.row_scale, program.gpus / self.joint_scale)
        self.c, self.ct = program.cost / self.scale, program.cost_t / self.t_scale if self.with_t else 0.0
        self.w: _Scaling | None = None
        self.like = _first_alike(self.local)
        self.degree = jobs * (self.linear + (1 if self.cone else 0)) + len(program.gpus)

    def _equilibrate(self) -> None:
        """Rows and columns scaled to a largest entry near 1, three times, as ECOS does; a cone's rows alike."""
        self.scale = np.ones(self.local.shape[::2])
        self.t_scale = 1.0
        self.row_scale = np.ones(self.local.shape[:2])
        self.joint_scale = np.ones(self.joint.shape[2])
        for _ in range(3):
            column = np.maximum(np.abs(self.local).max(axis=1), np.abs(self.joint).max(axis=2))
            row = np.maximum(np.abs(self.local).max(axis=2), np.abs(self.on_t))
            if self.cone:
                row[:, self.linear :] = row[:, self.linear :].sum(axis=1, keepdims=True)
            wide = np.abs(self.joint).max(axis=(0, 1))
            column, row, wide = _root(column), _root(row), _root(wide)
            t = float(_root(np.abs(self.on_t).max(keepdims=True)).item()) if self.with_t else 1.0
            self.local /= row[:, :, None] * column[:, None, :]
            self.on_t /= row * t
            self.joint /= column[:, :, None] * wide
            self.scale *= column
            self.row_scale *= row
            self.joint_scale *= wide
            self.t_scale *= t

    # --- the linear map and its system --------------------------------------------------------------------

    def _apply(self, x: Floats, t: float) -> _Point:
        local = np.matmul(self.local, x[:, :, None])[:, :, 0]
        if self.with_t:
            local = local + self.on_t * t
        return _Point(local, np.einsum("ik,ikj->j", x, self.joint))

    def _transposed(self, z: _Point) -> tuple[Floats, float]:
        x = np.matmul(z.local[:, None, :], self.local)[:, 0, :] + self.joint @ z.joint
        return x, float((self.on_t * z.local).sum()) if self.with_t else 0.0

    def _factor(self, w: _Scaling | None) -> None:
        """Prepare the system of one scaling; None: the scaling is 1.

        Job by job [0 L'; L −W²] is inverted as it is. The shorter normal equations would square W, which is nearly
        singular close to the boundary of the cone.
        """
        jobs, rows, variables = self.local.shape
        squared = np.broadcast_to(np.eye(rows), (jobs, rows, rows)) if w is None else w.squared
        # jobs of one kind nearly always stay alike to the last bit: what is inverted for the first is theirs
        same = (squared == squared[self.like]).all(axis=(1, 2))
        inverted, place = np.unique(np.where(same, self.like, np.arange(jobs)), return_inverse=True)
        system = np.zeros((len(inverted), variables + rows, variables + rows))
        local = self.local[inverted]
        system[:, :variables, variables:] = local.transpose(0, 2, 1)
        system[:, variables:, :variables] = local
        system[:, variables:, variables:] = -squared[inverted]
        system[:, np.arange(variables), np.arange(variables)] += _REGULARISED
        self.system = np.linalg.inv(system)[place]
        kinds = self.joint.shape[2]
        border = np.zeros((jobs, variables + rows, kinds + self.with_t))
        border[:, :variables, :kinds] = self.joint
        if self.with_t:
            border[:, variables:, kinds] = self.on_t
        self.border = border.reshape(-1, border.shape[2])
        self.reduced = np.matmul(self.system, border).reshape(self.border.shape)
        small = -self.border.T @ self.reduced
        wide = np.ones(kinds) if w is None else w.wide * w.wide
        small[np.arange(kinds), np.arange(kinds)] -= wide
        self.small = small

    def _system(self, rx: Floats, rt: float, rz: _Point) -> tuple[Floats, float, _Point]:
        """G'z = (rx, rt) and G (x, t) − W² z = rz; where there are cones, what rounding lost is put back."""
        x, t, z = self._once(rx, rt, rz)
        w, before = self.w, float("inf")
        if w is None or not self.cone:
            return x, t, z
        for _ in range(_REFINEMENTS):
            gx, gt = self._transposed(z)
            moved, squared = self._apply(x, t), w.times(w.times(z))
            ex, et = rx - gx, rt - gt
            ez = _Point(rz.local - moved.local + squared.local, rz.joint - moved.joint + squared.joint)
            error = max(float(np.abs(ex).max()), abs(et) if self.with_t else 0.0, float(np.abs(ez.local).max()),
                        float(np.abs(ez.joint).max()))  # fmt: skip
            if not error < before / 2.0:
                break
            before = error
            dx, dt, dz = self._once(ex, et, ez)
            x, t, z = x + dx, t + dt, _Point(z.local + dz.local, z.joint + dz.joint)
        return x, t, z

    def _once(self, rx: Floats, rt: float, rz: _Point) -> tuple[Floats, float, _Point]:
        jobs, rows, variables = self.local.shape
        half = np.matmul(self.system, np.concatenate([rx, rz.local], axis=1)[:, :, None]).reshape(-1)
        right = np.append(rz.joint, rt) if self.with_t else rz.joint
        found = np.linalg.solve(self.small, right - self.border.T @ half)
        both = (half - self.reduced @ found).reshape(jobs, variables + rows)
        kinds = len(rz.joint)
        t = float(found[kinds]) if self.with_t else 0.0
        return both[:, :variables], t, _Point(both[:, variables:], found[:kinds])

    # --- the cone -----------------------------------------------------------------------------------------

    def _into_cone(self, r: _Point) -> _Point:
        margin = min(float(r.local[:, : self.linear].min()), float(r.joint.min()))
        if self.cone:
            q = r.local[:, self.linear :]
            margin = min(margin, float((q[:, 0] - np.linalg.norm(q[:, 1:], axis=1)).min()))
        shift = 1.0 + (-margin if margin <= 0 else -_STEP)
        local = r.local.copy()
        local[:, : self.linear] += shift
        if self.cone:
            local[:, self.linear] += shift
        return _Point(local, r.joint + shift)

    def _scaling(self, s: _Point, z: _Point) -> _Scaling:
        return _Scaling(s, z, self.linear, self.cone)

    def run(self) -> Floats | None:
        c, ct, h = self.c, self.ct, self.h
        self._factor(None)
        zero = _Point(np.zeros_like(h.local), np.zeros_like(h.joint))
        x, t, z = self._system(np.zeros_like(c), 0.0, h)
        s = self._into_cone(_Point(-z.local, -z.joint))
        z = self._into_cone(self._system(-c, -ct, zero)[2])
        tau = kappa = 1.0
        size_c, size_h = max(1.0, float(np.sqrt((c * c).sum() + ct * ct))), max(1.0, h.norm())
        best, best_score = x / tau, float("inf")
        for _ in range(_ROUNDS):
            gx, gt = self._transposed(z)
            homogeneous = float(np.sqrt((gx * gx).sum() + gt * gt))
            rx, rxt = -gx - c * tau, -gt - ct * tau
            moved = self._apply(x, t)
            rz = _Point(s.local + moved.local - h.local * tau, s.joint + moved.joint - h.joint * tau)
            cx, hz = float((c * x).sum()) + ct * t, h.dot(z)
            rt = kappa + cx + hz
            gap = s.dot(z)
            mu = (gap + kappa * tau) / (self.degree + 1)
            far = max(rz.norm() / size_h, float(np.sqrt((rx * rx).sum() + rxt * rxt)) / size_c) / tau
            score = max(far, gap / tau / tau)
            if gap < 0:
                break  # rounding has left the cone
            if score < best_score:
                best, best_score = x / tau, score
            elif score > 1e3 * best_score and best_score < 1e-4:
                break  # the arithmetic gives out; it was nearer before
            value = -cx / tau if cx < 0 else -hz / tau if hz < 0 else 0.0
            if far < _TOLERANCE and (gap < _TOLERANCE or (value > 0 and gap / value < _TOLERANCE)):
                break
            if hz < 0 and homogeneous / -hz < _TOLERANCE and tau < kappa:
                return None
            w = self.w = self._scaling(s, z)
            try:
                self._factor(w)
                x1, t1, z1 = self._system(-c, -ct, h)
                x2, t2, z2 = self._system(rx, rxt, _Point(s.local - rz.local, s.joint - rz.joint))
                steep = kappa / tau - float((c * x1).sum()) - ct * t1 - h.dot(z1)
                dtau = (rt - kappa + float((c * x2).sum()) + ct * t2 + h.dot(z2)) / steep
                wdz = w.times(_Point(z2.local + dtau * z1.local, z2.joint + dtau * z1.joint))
                wds = _Point(-wdz.local - w.value.local, -wdz.joint - w.value.joint)
                dkappa = -kappa - kappa / tau * dtau
                reach = w.reach(wds, wdz, tau, dtau, kappa, dkappa)
                sigma = min(1.0, max(1e-4, (1.0 - reach) ** 3))
                wanted = w.corrected(wds, wdz, sigma * mu)
                quotient = w.divided(wanted)
                back = w.times(quotient)
                keep = 1.0 - sigma
                x2, t2, z2 = self._system(keep * rx, keep * rxt, _Point(back.local - keep * rz.local,
                                                                        back.joint - keep * rz.joint))  # fmt: skip
                bkappa = kappa * tau + dkappa * dtau - sigma * mu
                dtau = (keep * rt - bkappa / tau + float((c * x2).sum()) + ct * t2 + h.dot(z2)) / steep
            except np.linalg.LinAlgError:
                break  # as near as the arithmetic gets
            dz = _Point(z2.local + dtau * z1.local, z2.joint + dtau * z1.joint)
            wdz = w.times(dz)
            wds = _Point(-quotient.local - wdz.local, -quotient.joint - wdz.joint)
            dkappa = -(bkappa + kappa * dtau) / tau
            step = _STEP * w.reach(wds, wdz, tau, dtau, kappa, dkappa)
            ds = w.times(wds)
            if not np.isfinite(step) or not np.isfinite(ds.local).all() or not np.isfinite(dz.local).all():
                break
            x, t = x + step * (x2 + dtau * x1), t + step * (t2 + dtau * t1)
            s = _Point(s.local + step * ds.local, s.joint + step * ds.joint)
            z = _Point(z.local + step * dz.local, z.joint + step * dz.joint)
            tau, kappa = tau + step * dtau, kappa + step * dkappa
        found: Floats = best / self.scale
        return found


class _Scaling:
    """Nesterov-Todd scaling at (s, z): W z = W⁻¹ s = λ."""

    def __init__(self, s: _Point, z: _Point, linear: int, cone: int) -> None:
        self.linear, self.cone = linear, cone
        self.flat = np.sqrt(s.local[:, :linear] / z.local[:, :linear])
        self.wide = np.sqrt(s.joint / z.joint)
        jobs, rows = s.local.shape
        self.squared = np.zeros((jobs, rows, rows))
        self.squared[:, np.arange(linear), np.arange(linear)] = self.flat * self.flat
        if cone:
            sq, zq = s.local[:, linear:], z.local[:, linear:]
            s_len, z_len = np.sqrt(_minkowski(sq)), np.sqrt(_minkowski(zq))
            sb, zb = sq / s_len[:, None], zq / z_len[:, None]
            gamma = np.sqrt((1.0 + (sb * zb).sum(axis=1)) / 2.0)
            w = (sb + zb * _J(cone)) / (2.0 * gamma)[:, None]
            self.eta = np.sqrt(s_len / z_len)
            self.w = w
            outer = 2.0 * w[:, :, None] * w[:, None, :] - np.diag(_J(cone))
            self.squared[:, linear:, linear:] = (self.eta**2)[:, None, None] * outer
        self.value = self.times(z)

    def times(self, v: _Point) -> _Point:
        local = np.empty_like(v.local)
        local[:, : self.linear] = self.flat * v.local[:, : self.linear]
        if self.cone:
            q, w = v.local[:, self.linear :], self.w
            inner = (w[:, 1:] * q[:, 1:]).sum(axis=1)
            local[:, self.linear] = self.eta * (w[:, 0] * q[:, 0] + inner)
            local[:, self.linear + 1 :] = self.eta[:, None] * (
                q[:, 1:] + (q[:, 0] + inner / (1.0 + w[:, 0]))[:, None] * w[:, 1:])  # fmt: skip
        return _Point(local, self.wide * v.joint)

    def corrected(self, ds: _Point, dz: _Point, centre: float) -> _Point:
        """λ∘λ + ds∘dz − σμ e."""
        value = self.value
        local = value.local**2 + ds.local * dz.local - centre
        if self.cone:
            i = self.linear
            a, b, lam = ds.local[:, i:], dz.local[:, i:], value.local[:, i:]
            local[:, i] = (lam * lam).sum(axis=1) + (a * b).sum(axis=1) - centre
            local[:, i + 1 :] = 2.0 * lam[:, :1] * lam[:, 1:] + a[:, :1] * b[:, 1:] + b[:, :1] * a[:, 1:]
        return _Point(local, value.joint**2 + ds.joint * dz.joint - centre)

    def divided(self, v: _Point) -> _Point:
        """The u with λ∘u = v."""
        value = self.value
        local = np.empty_like(v.local)
        local[:, : self.linear] = v.local[:, : self.linear] / value.local[:, : self.linear]
        if self.cone:
            i = self.linear
            lam, q = value.local[:, i:], v.local[:, i:]
            rho = _minkowski(lam)
            inner = (lam[:, 1:] * q[:, 1:]).sum(axis=1)
            local[:, i] = (lam[:, 0] * q[:, 0] - inner) / rho
            factor = (inner / lam[:, 0] - q[:, 0]) / rho
            local[:, i + 1 :] = factor[:, None] * lam[:, 1:] + q[:, 1:] / lam[:, :1]
        return _Point(local, v.joint / value.joint)

    def reach(self, ds: _Point, dz: _Point, tau: float, dtau: float, kappa: float, dkappa: float) -> float:
        """The longest step that stays in the cone, at most 0.999."""
        value = self.value
        lam = value.local[:, : self.linear]
        worst = min(float((ds.local[:, : self.linear] / lam).min()), float((dz.local[:, : self.linear] / lam).min()),
                    float((ds.joint / value.joint).min()), float((dz.joint / value.joint).min()))  # fmt: skip
        if self.cone:
            q = value.local[:, self.linear :]
            length = np.sqrt(_minkowski(q))
            unit = q / length[:, None]
            for v in (ds.local[:, self.linear :], dz.local[:, self.linear :]):
                first = (unit * v * _J(self.cone)).sum(axis=1)
                rest = v[:, 1:] - ((v[:, 0] + first) / (unit[:, 0] + 1.0))[:, None] * unit[:, 1:]
                worst = min(worst, float(((first - np.linalg.norm(rest, axis=1)) / length).min()))
        step = -1.0 / worst if worst < 0 else 1e13
        if dtau < 0:
            step = min(step, -tau / dtau)
        if dkappa < 0:
            step = min(step, -kappa / dkappa)
        return min(max(step, 1e-6), 0.999)


def _first_alike(local: Floats) -> NDArray[np.intp]:
    """For every job the first with the same rows."""
    _, first, place = np.unique(local.reshape(len(local), -1), axis=0, return_index=True, return_inverse=True)
    found: NDArray[np.intp] = first[place.reshape(-1)]
    return found


def _J(size: int) -> Floats:  # noqa: N802 - its name in the literature
    signs = -np.ones(size)
    signs[0] = 1.0
    return signs


def _minkowski(q: Floats) -> Floats:
    """q₀² − |q₁|², without losing it to rounding near the boundary."""
    rest = np.linalg.norm(q[:, 1:], axis=1)
    found: Floats = np.maximum((q[:, 0] - rest) * (q[:, 0] + rest), 1e-300)
    return found


def _root(values: Floats) -> Floats:
    found: Floats = np.where(values < 1e-6, 1.0, np.sqrt(values))
    return found

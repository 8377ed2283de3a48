"""The errors a person may cause, each with one clear sentence: bad input ends in exit code 2, a broken run in 1."""

from __future__ import annotations


class UserError(Exception):
    """Bad input from outside. Its text is one sentence that says what is wrong and where."""

    exit_code = 2  # of the program, where it ends in this


class PlanError(Exception):
    """A policy broke a rule of the house: names the policy, the job and the rule."""

    def __init__(self, policy: str, job: str, rule: str) -> None:
        super().__init__(f"policy {policy!r}, job {job!r}: {rule}")
        self.policy, self.job, self.rule = policy, job, rule

    def __reduce__(self) -> tuple[type[PlanError], tuple[str, str, str]]:
        return type(self), (self.policy, self.job, self.rule)  # so that a worker process can hand it over


class RunError(Exception):
    """A run broke off: an exception in a policy, or the death of the process it ran in. Names the policy."""

    def __init__(self, policy: str, what: str, details: str = "") -> None:
        super().__init__(f"policy {policy!r} {what}")
        self.policy, self.what, self.details = policy, what, details  # details: the traceback, where there is one

    def __reduce__(self) -> tuple[type[RunError], tuple[str, str, str]]:
        return type(self), (self.policy, self.what, self.details)

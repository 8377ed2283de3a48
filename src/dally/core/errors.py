"""The errors a person may cause: each carries one clear sentence and ends in exit code 2."""

from __future__ import annotations


class UserError(Exception):
    """Bad input from outside. Its text is one sentence that says what is wrong and where."""


class PlanError(Exception):
    """A policy broke a rule of the house: names the policy, the job and the rule."""

    def __init__(self, policy: str, job: str, rule: str) -> None:
        super().__init__(f"policy {policy!r}, job {job!r}: {rule}")
        self.policy, self.job, self.rule = policy, job, rule

    def __reduce__(self) -> tuple[type[PlanError], tuple[str, str, str]]:
        return type(self), (self.policy, self.job, self.rule)  # it has to get out of a worker process

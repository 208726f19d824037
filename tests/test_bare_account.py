"""The repository carries what it proves: a stranger's `make test` runs what CI runs."""

from __future__ import annotations

from bare_account import bare_account


def test_nearly_all_tests_need_nothing_but_the_checkout() -> None:
    account = bare_account()
    assert account.share >= 0.95, account.skipped

"""What a worker that starts later is told."""

from __future__ import annotations

from proxy.server.process.notices import (
    ADAPTED,
    ADDED,
    DRAINED,
    EXAMINED,
    RELOADED,
    REMOVED,
    RESUMED,
    Board,
    Notice,
    line_of,
    notice_of,
)


def after(*notices: Notice) -> list[tuple[str, str]]:
    board = Board()
    for notice in notices:
        board.take(notice)
    return [(notice.about, notice.name) for notice in board.notices]


def test_only_what_still_holds_is_told() -> None:
    assert after(Notice(DRAINED, "a"), Notice(DRAINED, "a"), Notice(DRAINED, "b"), Notice(RESUMED, "b")) == [(DRAINED, "a")]
    assert after(Notice(ADDED, "a"), Notice(DRAINED, "a")) == [(ADDED, "a"), (DRAINED, "a")]
    assert after(Notice(ADDED, "a"), Notice(DRAINED, "a"), Notice(REMOVED, "a")) == [(REMOVED, "a")]
    assert after(Notice(REMOVED, "a"), Notice(ADDED, "a")) == [(REMOVED, "a"), (ADDED, "a")]
    assert after(Notice(ADDED, "a"), Notice(REMOVED, "b"), Notice(DRAINED, "c"), Notice(RELOADED)) == [(DRAINED, "c")]
    assert after(Notice("of another version", "a")) == []


def test_findings_are_forgotten_with_the_settings_they_were_for() -> None:
    board = Board()
    for notice in (Notice(ADAPTED, fields={"rescue": True}), Notice(DRAINED, "a"), Notice(EXAMINED)):
        board.take(notice)
    assert board.is_examined
    board.forget_findings()
    assert not board.is_examined
    assert [notice.about for notice in board.notices] == [DRAINED]


def test_what_is_kept_is_bounded() -> None:
    assert len(after(*(Notice(REMOVED, str(number)) for number in range(5000)))) == 1000


def test_a_line_that_is_no_notice_is_passed_over() -> None:
    notice = Notice(ADDED, "a", {"url": "http://x"})
    assert notice_of(line_of(notice)) == notice
    for line in (b"ready\n", b"notice \n", b"notice {}\n", b'notice {"about": 1}\n', b"notice \xff\n"):
        assert notice_of(line) is None

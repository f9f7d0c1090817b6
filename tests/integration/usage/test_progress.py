"""Long commands draw a bar on a terminal and keep quiet in a pipe."""

from __future__ import annotations

from io import StringIO

from django.core.management.base import OutputWrapper

from ipuhub.management.demofolder import ProgressBar


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_how_far_it_is_and_gets_its_line_back() -> None:
    screen = Terminal()
    with ProgressBar(OutputWrapper(screen), "days") as bar:
        bar.show(1000, 2000)
    assert "1,000 of 2,000 days" in screen.getvalue()
    assert screen.getvalue().count("#") == 15
    assert screen.getvalue().endswith("\r\033[K")


def test_a_pipe_gets_nothing() -> None:
    pipe = StringIO()
    with ProgressBar(OutputWrapper(pipe), "days") as bar:
        bar.show(1, 2)
    assert pipe.getvalue() == ""

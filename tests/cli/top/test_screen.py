"""The screen of `zkcoord top`, without a terminal: what it shows of a reading, and what keys do."""

from dataclasses import replace

import pytest

from tests.cli.group_tree import P0, P1, A, B
from zkcoord.cli.top.screen import HELP, Line, Reading, Screen, Style, frame, pressed
from zkcoord.core.model import Phase
from zkcoord.core.view import START, Channel, GroupView, Member, Owner, QueuedCommand
from zkcoord.group_report import GroupReport, TreeReport
from zkcoord.operating.happenings import Sight
from zkcoord.operating.members import Outstanding
from zkcoord.tree.paths import DRAFT

WIDTH, HEIGHT = 100, 12
COMMAND = QueuedCommand(sequence="0000000003", version=0, option=START, threads={P1: f"{A}-0"}, generation=7)


def group(name: str, phase: Phase, offset: int, *members: str, commands: tuple[QueuedCommand, ...] = ()) -> GroupReport:
    view = GroupView(
        group=name,
        members={each: Member(consumer_id=each, czxid=n, threads={"clicks": 1}) for n, each in enumerate(members)},
        channels={members[0]: Channel(consumer_id=members[0], version=1, commands=commands)} if members else {},
        owners={P0: Owner(f"{members[0]}-0", 1)} if members else {},
        topics={"clicks": (0, 1)} if members else {},
    )
    return GroupReport(
        view=view,
        phase=phase,
        settled=phase is Phase.STABLE,
        offsets={P0: offset, P1: None},
        idle={},
        target={},
        awaited={},
        problems={},
        deleted=False,
    )


GROUPS = {
    "etl": group("etl", Phase.AWAITING_SYNC, 100, A, B, commands=(COMMAND,)),
    "audit": group("audit", Phase.EMPTY, 60),
    "web": replace(group("web", Phase.STABLE, 102, B), problems={"/x": "broken"}),
}
ABOVE = TreeReport(layout=DRAFT, coordinator="4", epoch=9, epoch_since_ms=0)
READING = Reading(
    sight=Sight(above=ABOVE, groups=GROUPS),
    ends={P0: 103, P1: 75},
    commands=(Outstanding(8_500, "etl", A, COMMAND),),
    now_ms=10_000,
)


def words(screen: Screen, reading: Reading = READING, height: int = HEIGHT) -> list[list[str]]:
    """The rows of the table, header first."""
    return [line.text.split() for line in frame(screen, reading, WIDTH, height)[3:-1] if line.text.strip()]


def after(*keys: str, reading: Reading = READING) -> Screen:
    screen = Screen()
    for key in keys:
        screen = pressed(screen, key, reading)
    return screen


def test_all_groups_are_shown_with_state_and_lag_and_what_needs_somebody_stands_out() -> None:
    lines = frame(Screen(), READING, WIDTH, HEIGHT)

    assert lines[0].text.endswith("coordinator 4, epoch 9  3 groups, 1 not at rest, 1 command outstanding")
    assert words(Screen()) == [
        ["GROUPv", "STATE", "#MEMBERS", "#PARTITIONS", "#COMMANDS", "LAG", "NOTE"],
        ["audit", "Empty", "0", "2", "0", "43", "-"],
        ["etl", "AwaitingSync", "2", "2", "1", "3", "-"],
        ["web", "Stable", "1", "2", "0", "1", "-"],
    ]
    assert [line.style for line in lines[3:7]] == [Style.HEADER, Style.CHOSEN, Style.MOVING, Style.BAD]
    assert lines[-1].text == HELP[:WIDTH]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 6), (20, 3), (200, 60), (1, 1)])
def test_a_frame_is_never_larger_than_the_terminal(width: int, height: int) -> None:
    for screen in (Screen(), after("enter"), after("enter", "tab"), after("enter", "tab", "tab")):
        lines = frame(screen, READING, width, height)
        assert len(lines) <= height and max(len(line.text) for line in lines) <= width


def test_keys_sort_by_the_next_column_numbers_with_the_largest_first() -> None:
    by_members, by_lag = after("s", "s"), after(*"sssss")

    assert [row[0] for row in words(by_members)] == ["GROUP", "etl", "web", "audit"]
    assert [row[0] for row in words(by_lag)] == ["GROUP", "audit", "etl", "web"]
    assert words(by_lag)[0][5] == "LAG^"
    assert [row[0] for row in words(pressed(by_lag, "r", READING))] == ["GROUP", "web", "etl", "audit"]


def test_a_chosen_group_is_opened_and_left_and_still_chosen() -> None:
    opened = after("down", "enter")

    assert frame(opened, READING, WIDTH, HEIGHT)[0].text.startswith("Group etl: AwaitingSync, generation 0, coordin")
    assert words(opened) == [
        ["TOPICv", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID"],
        ["clicks", "0", "100", "103", "3", f"{A}-0"],
        ["clicks", "1", "-", "75", "-", "-"],
    ]
    back = pressed(opened, "escape", READING)
    assert (back.group, back.chosen) == (None, "etl")
    assert pressed(back, "enter", READING).group == "etl"


def test_tabs_of_a_group_are_its_members_and_its_commands_with_their_age() -> None:
    members, commands = after("down", "enter", "tab"), after("down", "enter", "tab", "tab")

    assert words(members)[1:] == [[A, "-", "1", "1", "3", "-"], [B, "-", "0", "0", "-", "-"]]
    assert words(commands)[1:] == [["1500", A, "0000000003", "start-fetcher", "1", "-"]]
    assert pressed(commands, "tab", READING).tab == "partitions"


def test_the_choice_stays_on_its_group_when_others_come_and_is_kept_in_view() -> None:
    many = {f"g{n:03d}": group(f"g{n:03d}", Phase.STABLE, n) for n in range(50)}
    reading = replace(READING, sight=Sight(above=ABOVE, groups=many))
    screen = after("end", reading=reading)
    more = replace(READING, sight=Sight(above=ABOVE, groups=many | {"a": group("a", Phase.STABLE, 1)}))

    for shown in (reading, more):
        (chosen,) = [line.text for line in frame(screen, shown, WIDTH, HEIGHT) if line.style is Style.CHOSEN]
        assert chosen.split()[0] == "g049"
        assert words(screen, shown)[-1][0] == "g049" and len(words(screen, shown)) == HEIGHT - 4, (
            "no line is left empty"
        )
    assert pressed(screen, "up", more).chosen == "g048"
    assert pressed(screen, "page up", more, page=7).chosen == "g042"
    assert pressed(screen, "home", more).chosen == "a"


def test_a_group_that_went_and_a_tree_without_groups_say_so() -> None:
    gone = replace(READING, sight=Sight(above=ABOVE, groups={}))

    assert frame(after("down", "enter"), gone, WIDTH, HEIGHT)[0].text == "Group etl: gone"
    assert "there is no group" in frame(Screen(), gone, WIDTH, HEIGHT)[4].text
    assert frame(Screen(), Reading(), WIDTH, HEIGHT)[0].text.endswith("reading")


def test_a_read_error_stands_above_the_table_and_cannot_steer_the_terminal() -> None:
    lines = frame(Screen(), replace(READING, notice="Kafka is away\x1b[2J"), WIDTH, HEIGHT)

    assert (lines[1].text, lines[1].style) == ("Kafka is away\\x1b[2J", Style.BAD)


def test_q_ends_it_and_other_keys_do_nothing() -> None:
    assert after("q").over
    assert after("x", "escape", "tab", "") == Screen()


def test_a_title_that_is_too_long_goes_on_in_the_second_line_unless_that_has_a_notice() -> None:
    opened = after("down", "enter")
    first, second, *_ = frame(opened, READING, 60, HEIGHT)
    assert (first, second) == (
        Line("Group etl: AwaitingSync, generation 0, coordinator 4, epoch", Style.TITLE),
        Line("9, 1 command outstanding, 2 members, lag 3", Style.TITLE),
    )
    first, second, *_ = frame(opened, replace(READING, notice="Kafka is away"), 60, HEIGHT)
    assert first == Line("Group etl: AwaitingSync, generation 0, coordinator 4, epoch…", Style.TITLE)
    assert second == Line("Kafka is away", Style.BAD)

"""The schedule of all work: properties of all schedules, and docs/reference/optimizer.md's table, line by line."""

import itertools
import pathlib
import re

import pytest

from hivemind_c.optim.schedule import Action, Schedule

PAGE = pathlib.Path(__file__).parents[3] / "docs/reference/optimizer.md"


def schedules():
    """All that can be made."""
    flags = (
        "use_local_updates",
        "delay_grad_averaging",
        "delay_optimizer_step",
        "delay_state_averaging",
        "offload_optimizer",
        "auxiliary",
    )
    for values in itertools.product((False, True), repeat=len(flags)):
        for every in (1, 2, 5):
            try:
                yield Schedule(**dict(zip(flags, values)), average_state_every=every)
            except ValueError:
                pass


ALL = list(schedules())
CASES = [(schedule, epoch, alone) for schedule in ALL for epoch in range(1, 11) for alone in (False, True)]


def whole(plan):
    return plan.now + plan.background


def test_there_are_as_many_schedules_as_options_allow():
    assert len(ALL) == len(set(ALL)) > 30


def test_each_action_happens_once_at_most():
    for schedule, epoch, alone in CASES:
        plan = schedule.epoch(epoch, alone)
        actions = [action for action in whole(plan) if action is not Action.UPDATE_MODEL]
        assert len(actions) == len(set(actions)), schedule
        for part in (plan.now, plan.background):
            assert part.count(Action.UPDATE_MODEL) <= 1


def test_the_epoch_counts_before_step_returns():
    for schedule, epoch, alone in CASES:
        assert Action.NEXT_EPOCH in schedule.epoch(epoch, alone).now


def test_an_epoch_has_one_optimizer_step_or_one_for_each_batch():
    for schedule, epoch, alone in CASES:
        steps = [
            Action.OPTIMIZER_STEP in whole(schedule.epoch(epoch, alone)),
            Action.LOCAL_STEP in whole(schedule.batch()),
        ]
        assert sum(steps) == (0 if schedule.auxiliary else 1)


def test_actions_of_an_epoch_come_in_their_order():
    order = [
        Action.AVERAGE_GRADIENTS,
        Action.OPTIMIZER_STEP,
        Action.SCHEDULER_STEP,
        Action.AVERAGE_STATE,
        Action.UPDATE_MODEL,
    ]
    for schedule, epoch, alone in CASES:
        plan = schedule.epoch(epoch, alone)
        whole_order = [action for action in plan.now if action in order[:-1]] + [
            action for action in plan.background if action in order[:-1]
        ]
        for there in (
            whole_order,
            *([action for action in part if action in order] for part in (plan.now, plan.background)),
        ):
            assert there == sorted(there, key=order.index), schedule


def test_lone_schedule_averages_nothing():
    for schedule, epoch, alone in CASES:
        averaged = {Action.AVERAGE_GRADIENTS, Action.AVERAGE_STATE} & set(whole(schedule.epoch(epoch, alone)))
        assert not (alone and averaged)
        if not alone:
            assert (Action.AVERAGE_GRADIENTS in averaged) != schedule.use_local_updates
            assert (Action.AVERAGE_STATE in averaged) == (epoch % schedule.average_state_every == 0)


def test_undelayed_schedule_leaves_the_background_empty():
    for schedule, epoch, alone in CASES:
        if not schedule.delay_optimizer_step and (not schedule.delay_state_averaging or schedule.auxiliary):
            assert not schedule.epoch(epoch, alone).background
            assert not schedule.batch().background


def test_background_work_reaches_the_model_in_the_end():
    for schedule, epoch, alone in CASES:
        for plan in (schedule.epoch(epoch, alone), schedule.batch()):
            assert not plan.background or plan.background[-1] is Action.UPDATE_MODEL


def test_an_offloaded_model_learns_of_every_step():
    for schedule, epoch, alone in CASES:
        for plan in (schedule.epoch(epoch, alone), schedule.batch()):
            if schedule.offload_optimizer and {Action.OPTIMIZER_STEP, Action.LOCAL_STEP} & set(whole(plan)):
                assert Action.UPDATE_MODEL in whole(plan)


# ---- the page ----

WHERE = {"before `step()` returns": "now", "in the background": "background", "-": None, "each batch": "batch"}
COLUMNS = (
    Action.AVERAGE_GRADIENTS,
    Action.OPTIMIZER_STEP,
    Action.SCHEDULER_STEP,
    Action.AVERAGE_STATE,
    Action.UPDATE_MODEL,
)


def lines():
    table = PAGE.read_text().split("<!-- table -->")[1]
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and cells[0].startswith("`"):
            yield cells


def schedule_of(cell):
    options = dict(re.findall(r"`(\w+)=(\w+)`", cell))
    return Schedule(**{name: value == "True" for name, value in options.items()})


@pytest.mark.parametrize("cells", list(lines()), ids=lambda cells: cells[0])
def test_page_matches_each_schedule(cells):
    schedule = schedule_of(cells[0])
    plan = schedule.epoch(1, alone=False)
    assert len(cells) == 1 + len(COLUMNS)
    for action, said in zip(COLUMNS, cells[1:]):
        place = "now" if action in plan.now else "background" if action in plan.background else None
        if place is None and schedule.use_local_updates and action in (Action.OPTIMIZER_STEP, Action.UPDATE_MODEL):
            place = "batch"
        if action is Action.UPDATE_MODEL and place == "background":
            assert said == "at a later `step()`"
        elif action is Action.UPDATE_MODEL and place is None:
            assert said == "by the step itself"
        else:
            assert WHERE[said] == place, action


def test_the_page_has_a_line_for_every_way_to_delay():
    said = {schedule_of(cells[0]) for cells in lines()}
    ways = {
        (s.use_local_updates, s.delay_grad_averaging, s.delay_optimizer_step, s.delay_state_averaging)
        for s in ALL
        if not s.auxiliary and not (s.use_local_updates and s.delay_optimizer_step)
    }
    told = {
        (s.use_local_updates, s.delay_grad_averaging, s.delay_optimizer_step, s.delay_state_averaging) for s in said
    }
    late = {way for way in ways if way[1] or way[2]}  # there the state is late whatever delay_state_averaging says
    assert ways - late <= told and {way[:3] for way in late} <= {way[:3] for way in told}


def test_the_page_has_a_timeline_for_every_line():
    text = PAGE.read_text()
    for name in (
        "synchronous",
        "delay_state_averaging",
        "delay_optimizer_step",
        "delay_grad_averaging",
        "use_local_updates",
    ):
        assert f"### {name}" in text or f"### `{name}`" in text

"""The grader's own test: it finds no fault in what there is, and it does find each kind of fault that there could be."""

import dataclasses

import pytest

from autograder import exercises, judge, mutants, selftest
from autograder.exercise import mistake

COMBINE = exercises.module("attention").exercise("combine_masks")
OR = next(each for each in COMBINE.mistakes if each.id == "or_for_and")


def run(name, exercise=None):
    """The Counts of a module, or of one exercise of it alone."""
    module = exercises.module(name)
    return selftest.selftest([dataclasses.replace(module, exercises=[exercise]) if exercise else module])


def test_no_fault_in_start():
    counts = run("start")
    assert counts.faults == []
    assert (counts.exercises, counts.references, counts.stubs, counts.mistakes) == (1, 1, 1, 6)
    assert counts.alternatives >= 3


@pytest.mark.slow
@pytest.mark.parametrize("name", exercises.NAMES[1:])
def test_no_fault_in(name):
    counts, module = run(name), exercises.module(name)
    assert counts.faults == []
    assert counts.exercises == counts.references == counts.stubs == len(module.exercises)
    assert counts.mistakes == sum(len(exercise.mistakes) for exercise in module.exercises)
    assert counts.alternatives == len(selftest.alternatives(module))


@pytest.mark.slow
@pytest.mark.parametrize("name", exercises.NAMES)
def test_what_a_mistake_costs_does_not_depend_on_the_numbers_that_were_drawn(name):
    for exercise in exercises.module(name).exercises:
        targets = {mistake.id: mutants.patched(exercise.reference, [mistake]) for mistake in exercise.mistakes}
        costs = {id: set() for id in targets}  # the parts that it loses, for each seed
        for seed in range(1000, 1004 if exercise.is_class else 1020):
            cases, expected = exercise.draw(seed), exercise.expected(seed)
            for id, target in targets.items():
                found = judge.differences(cases, exercise.observe(target, cases), expected, exercise.parts)
                costs[id].add(frozenset(difference.part for difference in found))
        assert not [id for id, parts in costs.items() if frozenset() in parts], exercise.name  # it passes
        assert {id: parts for id, parts in costs.items() if len(parts) > 1} == {}, exercise.name


def test_there_are_as_many_mistakes_and_alternatives_as_the_course_promises():
    modules = exercises.modules()
    assert sum(len(exercise.mistakes) for module in modules for exercise in module.exercises) >= 250
    assert sum(len(selftest.alternatives(module)) for module in modules) >= 120


@pytest.mark.parametrize("name", exercises.NAMES)
def test_every_exercise_has_right_answers_in_other_styles_and_none_is_lost_by_a_misspelt_name(name):
    module = exercises.module(name)
    assert {name for name, _, _ in selftest.alternatives(module)} == {exercise.name for exercise in module.exercises}


HARMLESS = mistake("harmless", "combined & mask", "mask & combined", "Nothing is wrong with this.")
AGAIN = mistake("again", "combined & mask", "mask | combined", "The same as or_for_and.")
SAME_NAME = dataclasses.replace(next(each for each in COMBINE.mistakes if each.id == "last_one_wins"), id="or_for_and")
RAISES = mistake("raises", "    combined = None\n", "    raise ValueError\n", "It raises in every case.")

DOCTORED = {  # what is changed of the exercise -> what the faults must say
    "a mistake that is none": ({"mistakes": [OR, HARMLESS]}, ["the mistake harmless is passed"]),
    "two mistakes that can't be told apart": (
        {"mistakes": [OR, AGAIN]},
        ["the mistake or_for_and is named or_for_and and again", "the mistake again is named or_for_and and again"],
    ),
    "a mistake that raises in every case": ({"mistakes": [RAISES]}, ["the mistake raises raises in every case"]),
    "two mistakes of one name": ({"mistakes": [OR, SAME_NAME]}, ["two mistakes are called or_for_and"]),
    "no hints": ({"hints": []}, ["has no hints"]),
    "a rule that an honest answer breaks": (
        {"forbidden": ["reduce"]},
        ["the alternative 'functools.reduce, operator.and_' is failed, not passed"],
    ),
}


@pytest.mark.parametrize("what", DOCTORED)
def test_each_kind_of_fault_is_found(what):
    changes, words = DOCTORED[what]
    faults = run("attention", dataclasses.replace(COMBINE, **{"mistakes": [OR], **changes})).faults
    assert all(any(word in fault for fault in faults) for word in words), faults
    assert all(any(word in fault for word in words) for fault in faults), faults  # and nothing else is at fault


def test_a_wrong_alternative_is_a_fault(monkeypatch):
    monkeypatch.setattr(selftest, "alternatives", lambda module: [("combine_masks", "the last one wins", lambda *masks: masks[-1])])
    counts = run("attention", dataclasses.replace(COMBINE, mistakes=[OR]))
    assert counts.alternatives == 0
    assert len(counts.faults) == 1 and "'the last one wins' is failed, not passed" in counts.faults[0]


def test_a_reference_that_is_not_what_its_cases_say_is_an_error():
    with pytest.raises(RuntimeError, match="the reference of combine_masks fails in the case 'two masks'"):
        run("attention", dataclasses.replace(COMBINE, options={"returns": ["output", "weights"]}))


def test_a_patch_that_does_not_fit_exactly_once_is_an_error():
    with pytest.raises(ValueError, match="occurs 0 times"):
        dataclasses.replace(COMBINE, mistakes=[mistake("gone", "combined && mask", "mask", "")])
    with pytest.raises(ValueError, match=r"occurs [2-9] times"):
        dataclasses.replace(COMBINE, mistakes=[mistake("ambiguous", "combined", "c", "")])

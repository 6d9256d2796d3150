"""The registry: what shows, when, in which order, and that nothing late ever gets in."""

from __future__ import annotations

import threading

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_author.errors import PluginClosed, RegistrationError
from buzz_author.instructions import CheckedInstructions, check_instructions
from buzz_author.sections import section
from buzz_host.plugins.contributions import INSTRUCTIONS, NOTES, Contributions, Note, Scope


def instruction(plugin: str, identifier: str) -> CheckedInstructions:
    return check_instructions(plugin, None, id=identifier, text=f"{plugin} says {identifier}")


def register(scope: Scope, identifier: str) -> None:
    scope.register(INSTRUCTIONS, identifier, instruction(scope.plugin, identifier))


def add_note(contributions: Contributions, scope: Scope, agent: str, text: str) -> None:
    note = Note(agent, section("plugin-note", text, attributes=(("plugin", scope.plugin),)))
    scope.register(NOTES, contributions.next_note(), note)


def shown(plugin: str = "a", *identifiers: str) -> tuple[Contributions, Scope]:
    contributions = Contributions()
    scope = contributions.open(plugin, "r1")
    for each in identifiers:
        register(scope, each)
    scope.show()
    return contributions, scope


def keys(contributions: Contributions) -> list[str]:
    return [each.key for each in contributions.snapshot(INSTRUCTIONS)]


@pytest.mark.req("PLG-03")
def test_what_is_registered_is_hidden_until_its_plugin_is_active() -> None:
    contributions = Contributions()
    scope = contributions.open("a", "r1")
    register(scope, "x")
    assert keys(contributions) == []
    assert scope.show()
    (only,) = contributions.snapshot(INSTRUCTIONS)
    assert (only.key, only.plugin, only.id, only.revision) == ("a/x", "a", "x", "r1")


@pytest.mark.req("PLG-03")
def test_what_an_active_plugin_adds_shows_at_once_and_goes_when_it_is_taken_back() -> None:
    contributions, scope = shown("a", "x")
    take_back = scope.register(INSTRUCTIONS, "y", instruction("a", "y"))
    assert keys(contributions) == ["a/x", "a/y"]
    take_back()
    take_back()
    assert keys(contributions) == ["a/x"]


@pytest.mark.req("PLG-03")
def test_a_disposer_takes_back_its_own_contribution_only() -> None:
    _, scope = shown()
    take_back = scope.register(INSTRUCTIONS, "x", instruction("a", "x"))
    take_back()
    register(scope, "x")
    take_back()
    assert "x" in scope.entries[INSTRUCTIONS.name]


@pytest.mark.req("PLG-03", "INS-03")
def test_a_key_stands_once_per_kind() -> None:
    contributions, scope = shown("a", "x")
    with pytest.raises(RegistrationError, match="plugin 'a': instructions 'x' is registered already"):
        register(scope, "x")
    other = contributions.open("b", "r1")
    register(other, "x")
    other.show()
    assert keys(contributions) == ["a/x", "b/x"]


@pytest.mark.req("PLG-03", "PLG-02")
def test_a_closed_scope_takes_everything_away_and_lets_nothing_in() -> None:
    contributions, scope = shown("a", "x")
    scope.close()
    scope.close()
    assert keys(contributions) == []
    with pytest.raises(PluginClosed, match="plugin 'a' was stopped"):
        register(scope, "y")
    assert not scope.show()
    assert keys(contributions) == []


@pytest.mark.req("PLG-03")
def test_a_plugin_has_one_activation_at_a_time() -> None:
    contributions, scope = shown("a")
    with pytest.raises(RegistrationError, match="'a' is running already"):
        contributions.open("a", "r2")
    scope.close()
    contributions.open("a", "r2")


@pytest.mark.req("PLG-03")
def test_a_snapshot_is_the_same_object_until_something_that_shows_changes() -> None:
    contributions, scope = shown("a", "x")
    first, revision = contributions.snapshot(INSTRUCTIONS), contributions.revision
    hidden = contributions.open("b", "r1")
    register(hidden, "y")
    hidden.close()
    assert contributions.snapshot(INSTRUCTIONS) is first
    assert contributions.revision == revision
    register(scope, "y")
    assert contributions.snapshot(INSTRUCTIONS) is not first
    assert contributions.revision > revision
    assert [each.key for each in first] == ["a/x"], "what was handed out never changes"


@pytest.mark.req("PLG-03", "INS-03")
def test_what_is_handed_out_cannot_be_changed() -> None:
    contributions, _ = shown("a", "x")
    (only,) = contributions.snapshot(INSTRUCTIONS)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        only.id = "other"  # type: ignore[misc]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        only.value.id = "other"  # type: ignore[misc]


@pytest.mark.req("INS-05")
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "a-b", "a_b", "ab", "b", "0"]), st.sampled_from(["x", "x.y", "x-y", "xy", "9"])
        ),
        unique=True,
    ).flatmap(lambda pairs: st.tuples(st.just(pairs), st.permutations(pairs)))
)
def test_the_order_of_registration_never_shows(orders: tuple[list[tuple[str, str]], list[tuple[str, str]]]) -> None:
    results = []
    for order in orders:
        contributions = Contributions()
        scopes: dict[str, Scope] = {}
        for plugin, identifier in order:
            if plugin not in scopes:
                scopes[plugin] = contributions.open(plugin, "r")
                scopes[plugin].show()
            register(scopes[plugin], identifier)
        results.append([(each.plugin, each.id) for each in contributions.snapshot(INSTRUCTIONS)])
    assert results[0] == results[1] == sorted(orders[0])


@pytest.mark.req("INS-11")
def test_the_ids_of_the_last_activation_are_remembered() -> None:
    contributions, scope = shown("a", "x", "y")
    take_back = scope.register(INSTRUCTIONS, "z", instruction("a", "z"))
    take_back()
    scope.close()
    assert contributions.known_ids("a", INSTRUCTIONS) == ("x", "y")
    again = contributions.open("a", "r2")
    assert contributions.known_ids("a", INSTRUCTIONS) == ("x", "y")
    register(again, "w")
    again.show()
    assert contributions.known_ids("a", INSTRUCTIONS) == ("w",)
    assert contributions.known_ids("never", INSTRUCTIONS) == ()


@pytest.mark.req("INS-12")
def test_a_note_is_carried_once_by_its_own_agent_and_can_be_put_back() -> None:
    contributions, scope = shown("a")
    add_note(contributions, scope, "main", "first")
    add_note(contributions, scope, "dev", "for dev")
    add_note(contributions, scope, "main", "second")
    taken = contributions.take_notes("main")
    assert [each.value.section.body for each in taken] == ["first", "second"]
    assert contributions.take_notes("main") == ()
    contributions.put_back(taken)
    assert contributions.take_notes("main") == taken
    assert [each.value.agent for each in contributions.snapshot(NOTES)] == ["dev"]


@pytest.mark.req("INS-12", "PLG-03")
def test_the_notes_of_a_plugin_that_is_gone_do_not_come_back() -> None:
    contributions, scope = shown("a")
    add_note(contributions, scope, "main", "first")
    taken = contributions.take_notes("main")
    scope.close()
    contributions.put_back(taken)
    contributions.open("a", "r2").show()
    contributions.put_back(taken)
    assert contributions.take_notes("main") == ()


@pytest.mark.req("REG-03")
def test_listeners_hear_each_visible_change_and_a_bad_one_silences_nobody(caplog: pytest.LogCaptureFixture) -> None:
    contributions, scope = shown("a")
    heard: list[int] = []

    def broken() -> None:
        raise ValueError("mine")

    contributions.subscribe(broken)
    unsubscribe = contributions.subscribe(lambda: heard.append(contributions.revision))
    register(scope, "x")
    scope.close()
    assert heard == sorted(set(heard))
    assert len(heard) == 2
    unsubscribe()
    contributions.open("b", "r").show()
    assert len(heard) == 2
    assert "mine" in caplog.text


@pytest.mark.req("PLG-02", "PLG-03")
def test_many_threads_register_and_nothing_is_lost_or_late() -> None:
    contributions = Contributions()
    scope = contributions.open("a", "r")
    scope.show()
    start = threading.Barrier(9)
    refused: list[int] = []
    kept: list[str] = []

    def work(number: int) -> None:
        start.wait()
        for step in range(200):
            try:
                register(scope, f"{number}-{step}")
            except PluginClosed:
                refused.append(number)
                return
            kept.append(f"{number}-{step}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    start.wait()
    while len(kept) < 100:
        contributions.snapshot(INSTRUCTIONS)
    scope.close()
    assert contributions.snapshot(INSTRUCTIONS) == ()
    for thread in threads:
        thread.join(10)
    assert contributions.snapshot(INSTRUCTIONS) == ()
    assert len(contributions.known_ids("a", INSTRUCTIONS)) == len(kept)

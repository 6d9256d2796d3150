"""Frontmatter of plain lines is read without the YAML library, and says the same as with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from buzz_host.agents.catalogue import CORE_AGENTS
from buzz_host.agents.frontmatter import plain_table
from buzz_host.agents.spec import AgentFileError
from buzz_host.agents.yaml_reader import YamlReader

values = st.text(st.sampled_from("aZ09 .,;:'\"()/_-#&*!|>%@`?[]{}\t~é\u2028"), max_size=12)
lines = st.builds(
    "{}{}{}".format,
    st.sampled_from(["name", "a", "on_message", "Key", "- a", ""]),
    st.sampled_from([": ", ":", " "]),
    values,
)


@pytest.mark.req("SPC-01")
@given(
    st.lists(
        st.one_of(lines, st.from_regex(r"[a-z][a-z_]{0,5}: [A-Za-z][A-Za-z0-9 .,;'()/_-]{0,20}", fullmatch=True)),
        max_size=5,
    )
)
@example(["name: main", "description: It's (here); a/b, c - d.  "])
@example(["name: no", "a: null"])
def test_plain_lines_say_what_yaml_says(written: list[str]) -> None:
    quick = plain_table(written)
    if quick is not None:
        assert quick == YamlReader(Path("x.md"), "\n" + "\n".join(written) + "\n").read()


@pytest.mark.req("SPC-01")
@pytest.mark.parametrize(
    "line", ["a: 'x'", "a: x # y", "a: x: y", "a:", "  a: x", "a: - x", "a: &x y", "a: *x", "a: |", ""]
)
def test_what_yaml_could_take_for_more_is_left_to_yaml(line: str) -> None:
    assert plain_table(["name: main", line]) is None


@pytest.mark.req("SPC-01")
def test_a_key_that_stands_twice_is_left_to_yaml_which_refuses_it() -> None:
    written = ["name: one", "name: two"]
    assert plain_table(written) is None
    with pytest.raises(AgentFileError, match="stands twice"):
        YamlReader(Path("x.md"), "\n" + "\n".join(written) + "\n").read()


@pytest.mark.req("SPC-01")
def test_the_agents_that_come_along_need_no_yaml_library() -> None:
    program = (
        "import sys; from pathlib import Path; from buzz_host.agents.files import parse_agent_file\n"
        f"print([parse_agent_file(p, 'core').name for p in sorted(Path({str(CORE_AGENTS)!r}).glob('*.md'))])\n"
        "print('ruamel.yaml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout == "['dev', 'main']\nFalse\n"

"""Components can be created twice in one program."""

import ast
import re
from pathlib import Path

import pytest

from tests.unit.program import EVERYTHING, PROJECT, Graph, run

ONCE = ("settings", "provider", "on_aws")


class Rename(ast.NodeTransformer):
    """Gives every component another name."""

    def visit_Call(self, call: ast.Call) -> ast.AST:
        self.generic_visit(call)
        named = call.args and isinstance(call.args[0], ast.Constant)
        if named and isinstance(call.func, ast.Name):
            call.args[0] = ast.Constant(f"second-{call.args[0].value}")  # type: ignore[attr-defined]
        return call


def twice(program: str) -> str:
    """The program, with all its components a second time under other names."""

    def is_repeated(statement: ast.stmt) -> bool:
        if isinstance(statement, ast.ImportFrom | ast.Import):
            return False
        return not any(re.match(rf"\(?{name}\b", ast.unparse(statement)) for name in (*ONCE, "pulumi.export"))

    body = ast.parse(program).body
    second = [Rename().visit(statement) for statement in ast.parse(program).body if is_repeated(statement)]
    return "\n".join(ast.unparse(statement) for statement in [*body, *second])


def urns(graph: Graph) -> set[str]:
    return set(graph.resources)


def test_every_component_can_be_created_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    once = run(monkeypatch, EVERYTHING)
    (tmp_path / "__main__.py").write_text(twice((PROJECT / "__main__.py").read_text()))
    both = run(monkeypatch, EVERYTHING, program=tmp_path / "__main__.py")
    assert urns(once) <= urns(both), "the names in running stacks would change"
    provider = {r.urn for r in once.resources.values() if r.type == "pulumi:providers:aws"}
    assert len(urns(both)) == 2 * len(urns(once)) - len(provider)
    second = [both.resources[urn].name for urn in urns(both) - urns(once)]
    assert [name for name in second if not name.startswith("second-")] == []

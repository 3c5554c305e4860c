"""Mutants: small changes of a module, each of which a test should notice.  Pure.

What is not changed, because nobody can notice it or because everybody does:

* text, annotations and decorators: they decide nothing at run time;
* assertions: they state our own mistakes, and never fail while the code is right;
* what stands under TYPE_CHECKING, and unions of types: they are for type checkers;
* assignments to local names: without one, every test of the function fails.

Outside of functions a number is raised and not lowered: to try it takes a fresh interpreter, and
whoever notices the one mostly notices the other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

WIDTH_MAX = 60  # of one side of a change, when it is told

OPPOSITES: dict[type, type] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OTHER_OPERATORS: dict[type, type] = {
    **OPPOSITES,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
OTHER_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
UNTOUCHED = {"annotation", "returns", "decorator_list", "bases", "ctx", "type_comment"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
REMOVABLE = (ast.AugAssign, ast.Delete, ast.Raise)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A module in which one node is another one."""

    path: Path
    number: int  # in its module
    line: int
    lines: range  # of the statement, without the statements in it
    before: str
    after: str
    function: str  # the outermost one that it stands in; empty: it counts from the import on
    tree: ast.Module
    holder: Any  # a node's fields or a list ...
    key: str | int  # ... and the place in it that changes
    node: ast.AST

    def code(self) -> CodeType:
        """The changed module, compiled; the tree is left as it was."""
        old, self.holder[self.key] = self.holder[self.key], self.node
        try:
            return compile(ast.fix_missing_locations(self.tree), str(self.path), "exec")
        finally:
            self.holder[self.key] = old

    def __str__(self) -> str:
        return f"{self.line}: {self.before}  ->  {self.after}"


def mutants_of(path: Path) -> list[Mutant]:
    """Every mutant of the module, in the order of its lines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: list[Mutant] = []
    for holder, key, statement, function in _places(tree, tree, ""):
        old = holder[key]
        for new in _others(old) if function else list(_others(old))[:1]:
            ast.copy_location(new, old)
            before, after = _told(old, new)
            mutant = Mutant(
                path=path,
                number=len(found),
                line=getattr(old, "lineno", statement.lineno),
                lines=_lines(statement),
                before=before,
                after=after,
                function=function,
                tree=tree,
                holder=holder,
                key=key,
                node=new,
            )
            found.append(mutant)
    return found


def _places(
    node: ast.AST, statement: ast.AST, function: str
) -> Iterator[tuple[Any, str | int, Any, str]]:
    """Every node below this one: where it hangs, its statement, and the function that has it."""
    for field, value in ast.iter_fields(node):
        if field in UNTOUCHED:
            continue
        inside = function
        if field == "body" and isinstance(node, FUNCTIONS):
            inside = function or getattr(node, "name", "<lambda>")
        places = enumerate(value) if isinstance(value, list) else [(field, value)]
        holder = value if isinstance(value, list) else vars(node)
        for key, child in places:
            if isinstance(child, ast.AST) and not _decides_nothing(child):
                own = child if isinstance(child, ast.stmt) else statement
                yield holder, key, own, inside
                yield from _places(child, own, inside)


def _decides_nothing(node: ast.AST) -> bool:
    match node:
        case ast.Assert() | ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.BinOp(op=ast.BitOr(), right=ast.Constant(value=None)):
            return True
        case ast.BinOp(op=ast.BitOr(), left=ast.Name(id="float"), right=ast.Name()):
            return True
    return False


def _others(node: ast.AST) -> Iterator[ast.AST]:
    """What could stand here instead of this node."""
    match node:
        case ast.Compare(ops=ops):
            for place, op in enumerate(ops):
                if other := OTHER_OPERATORS.get(type(op)):
                    yield _changed(node, ops=[*ops[:place], other(), *ops[place + 1 :]])
        case ast.BinOp(op=op) | ast.BoolOp(op=op):
            yield _changed(node, op=OTHER_OPERATORS[type(op)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield copy(operand)
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.Constant(value=float(value)):
            yield ast.Constant(value + 1.0)
        case ast.Call(func=ast.Name(id=name)) if name in OTHER_CALLS:
            yield _changed(node, func=ast.Name(OTHER_CALLS[name], ast.Load()))
        case ast.Slice(lower=lower, upper=upper):
            if lower is not None:
                yield _changed(node, lower=None)
            if upper is not None:
                yield _changed(node, upper=None)
        case ast.IfExp(test=test) if _can_be_negated(test):
            yield _changed(node, test=_negated(test))
        case ast.comprehension(ifs=[*ifs]):
            for place, test in enumerate(ifs):
                if _can_be_negated(test):
                    yield _changed(node, ifs=[*ifs[:place], _negated(test), *ifs[place + 1 :]])
        case ast.stmt():
            yield from _other_statements(node)


def _other_statements(node: ast.stmt) -> Iterator[ast.stmt]:
    match node:
        case ast.If(test=test) | ast.While(test=test) if _can_be_negated(test):
            yield _changed(node, test=_negated(test))
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield _changed(node, value=ast.Constant(None))
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()
        case ast.Expr(value=value) if not isinstance(value, ast.Constant):
            yield ast.Pass()
        case ast.Assign(targets=[*targets]) if not any(isinstance(t, ast.Name) for t in targets):
            if not all(isinstance(t, ast.Tuple) for t in targets):
                yield ast.Pass()
        case ast.AugAssign(op=op):
            yield _changed(node, op=OTHER_OPERATORS[type(op)]())
    if isinstance(node, REMOVABLE):
        yield ast.Pass()


def _can_be_negated(test: ast.expr) -> bool:
    """Whether no other mutant of this condition means the same."""
    match test:
        case ast.Compare(ops=[op]):
            return type(op) not in OPPOSITES
        case ast.UnaryOp(op=ast.Not()) | ast.Constant():
            return False
    return True


def _negated(test: ast.expr) -> ast.expr:
    return ast.copy_location(ast.UnaryOp(ast.Not(), test), test)


def _changed(node: Any, **fields: object) -> Any:
    new = copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _lines(statement: Any) -> range:
    body = getattr(statement, "body", None)
    first: int = statement.lineno
    last: int = max(first, body[0].lineno - 1) if body else statement.end_lineno
    return range(first, last + 1)


def _told(old: ast.AST, new: ast.AST) -> tuple[str, str]:
    """Both sides of the change, of a condition without what depends on it."""
    sides = []
    for node in (old, new):
        shown = node.test if isinstance(node, ast.If | ast.While) else node
        words = "if ".join(ast.unparse(shown).split("if ")).replace("\n", " ")
        sides.append(words if len(words) <= WIDTH_MAX else f"{words[: WIDTH_MAX - 1]}…")
    return sides[0], sides[1]

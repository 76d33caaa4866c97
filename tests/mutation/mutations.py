"""Mutations: small changes of a source file, each of which some test should notice.

Every mutation replaces one expression or statement by another, as a programmer might have mistyped it. Not mutated is
what no test on a CPU can notice: annotations, docstrings, messages, assertions, decorators, code for GPUs alone.
"""

from __future__ import annotations

import ast
import copy
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

Replacement = tuple[str, ast.AST, str]
"""The kind of a mutation, the node that is replaced, and the text that replaces it."""

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
SYMMETRIC = {"max", "min", "maximum", "minimum", "gcd", "equal", "allclose"}
"""Functions that do not depend on the order of their first two arguments."""

UNSEEN_KEYWORDS = {"help", "strict", "num_warps", "num_stages", "non_blocking"}
"""Keyword arguments that change no result of a correct program."""

SHORT = 60
"""Characters of a part of a line that are shown."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Droppable = ast.Expr | ast.Assign | ast.AugAssign | ast.Raise | ast.Continue | ast.Break | ast.Delete


@dataclass(frozen=True)
class Mutation:
    """One change of one file: the bytes from `start` to `end`, in line `line`, become `after`."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    after: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.end :]

    def describe(self, source: bytes) -> str:
        """Return the line with what becomes of it, on one line."""
        before = source[source.rfind(b"\n", 0, self.start) + 1 : self.start]
        rest = source[self.end :].split(b"\n", 1)[0]
        texts = [" ".join(text.decode().split()) for text in (before, source[self.start : self.end], rest)]
        head, old, tail = (text if len(text) <= SHORT else f"{text[:SHORT]}..." for text in texts)
        return f"{head} [{old} => {self.after}] {tail}".strip()


def draw_mutations(project: Path, paths: Iterable[Path], number: int, seed: int) -> list[Mutation]:
    """Draw distinct mutations of the files at random, each kind as often as any other, sorted by file and line."""
    kinds: dict[str, list[Mutation]] = defaultdict(list)
    for path in sorted(paths):
        for mutation in list_mutations(str(path.relative_to(project)), path.read_bytes()):
            kinds[mutation.kind].append(mutation)
    generator = random.Random(seed)
    drawn: set[Mutation] = set()
    while len(drawn) < number and any(kinds.values()):
        kind = generator.choice(sorted(kind for kind, those in kinds.items() if those))
        drawn.add(kinds[kind].pop(generator.randrange(len(kinds[kind]))))
    return sorted(drawn, key=lambda mutation: (mutation.path, mutation.start, mutation.after))


def list_mutations(path: str, source: bytes) -> Iterator[Mutation]:
    """List every mutation of a file."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    listed = set()
    for node in mutable_nodes(ast.parse(source)):
        for kind, place, after in replacements(node):
            start = starts[place.lineno - 1] + place.col_offset  # type: ignore[attr-defined]
            end = starts[place.end_lineno - 1] + place.end_col_offset  # type: ignore[attr-defined]
            if (start, end, after) not in listed:
                listed.add((start, end, after))
                yield Mutation(path, place.lineno, kind, start, end, after)  # type: ignore[attr-defined]


def mutable_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Walk through all nodes whose mutation a test on a CPU could notice."""
    yield node
    for child in children(node):
        if not is_unseen(child):
            yield from mutable_nodes(child)


def children(node: ast.AST) -> Iterable[ast.AST]:
    """List the nodes below a node, without annotations, decorators, and what runs on GPUs alone."""
    if isinstance(node, Function):
        return [*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body]
    if isinstance(node, ast.ClassDef):
        return node.body
    if isinstance(node, ast.AnnAssign):
        return [node.value] if node.value else []
    if isinstance(node, ast.If) and "cuda" in ast.unparse(node.test):
        return [node.test, *node.orelse]
    return ast.iter_child_nodes(node)


def is_unseen(node: ast.AST) -> bool:
    """Return True for nodes that change nothing in a correct program, or nothing that a CPU runs."""
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Assert | ast.JoinedStr):
        return True
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.keyword):
        return node.arg in UNSEEN_KEYWORDS
    if isinstance(node, ast.ClassDef):
        return any(ast.unparse(base).startswith("Protocol") for base in node.bases)
    return is_for_gpus(node)


def is_for_gpus(node: ast.AST) -> bool:
    if isinstance(node, Function):
        return "cuda" in node.name or any(ast.unparse(each) == "overload" for each in node.decorator_list)
    return isinstance(node, ast.Assign | ast.Expr | ast.Return) and "torch.cuda." in ast.unparse(node)


def replacements(node: ast.AST) -> Iterator[Replacement]:
    """List what a node, or a node directly below it, may be replaced by."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from (("default", *each) for default in children(node) for each in other_constants(default))
            yield from early_returns(node)
        case ast.ClassDef():
            yield from field_defaults(node)
        case ast.Constant():
            yield from (("flag" if isinstance(node.value, bool) else "number", *each) for each in other_numbers(node))
        case ast.Compare(ops=[operator]):
            yield from (("comparison", node, changed(node, ops=[other()])) for other in COMPARISONS[type(operator)])
        case ast.BoolOp(op=operator):
            yield "boolean", node, changed(node, op=ast.Or() if isinstance(operator, ast.And) else ast.And())
        case ast.BinOp(op=operator) if type(operator) in ARITHMETIC:
            yield "arithmetic", node, changed(node, op=ARITHMETIC[type(operator)]())
        case ast.UnaryOp(operand=operand) if not is_whole_number(operand):  # the last of two axes is 1 as well as -1
            yield "negation", node, f"({ast.unparse(operand)})"
        case ast.If() | ast.IfExp():
            yield "condition", node.test, f"(not ({ast.unparse(node.test)}))"
        case ast.comprehension(ifs=[condition, *_]):
            yield "condition", condition, "True"
        case ast.Slice() | ast.Call():
            yield from swapped_arguments(node)
            yield from (("bound", bound, f"({ast.unparse(bound)} {by} 1)") for bound in bounds(node) for by in "+-")
    if isinstance(node, Droppable):
        yield "statement", node, "pass"


def is_whole_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def changed(node: ast.expr, **fields: object) -> str:
    """Return the source of an expression with other fields, in parentheses."""
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return f"({ast.unparse(other)})"


def other_numbers(node: ast.Constant) -> Iterator[tuple[ast.AST, str]]:
    """List other values of a number or a truth value."""
    match node.value:
        case bool(value):
            yield node, repr(not value)
        case int(value):
            yield from ((node, repr(other)) for other in (value + 1, value - 1))
        case float(value):
            yield from ((node, repr(other)) for other in ((value * 2, value / 2) if value else (1.0,)))


def other_constants(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """List other values of a default."""
    if isinstance(node, ast.Constant):
        yield from other_numbers(node)
        if isinstance(node.value, str):
            yield node, repr(f"{node.value}x")


def field_defaults(node: ast.ClassDef) -> Iterator[Replacement]:
    """List other defaults of the fields of a class."""
    for field in node.body:
        if isinstance(field, ast.AnnAssign) and field.value is not None:
            yield from (("default", *each) for each in other_constants(field.value))


def early_returns(node: Function) -> Iterator[Replacement]:
    """Let a function that returns nothing do nothing, and one that returns a truth value return the other."""
    body = [each for each in node.body if not is_unseen(each)]
    returns = ast.unparse(node.returns) if node.returns else ""
    if returns == "None" and body:
        yield "return", body[0], "return"
    if returns == "bool":
        ends = (each for each in ast.walk(node) if isinstance(each, ast.Return) and each.value is not None)
        yield from (("return", end, f"return not ({ast.unparse(end.value)})") for end in ends if end.value)


def swapped_arguments(node: ast.AST) -> Iterator[Replacement]:
    """Swap the first two arguments of a call."""
    match node:
        case ast.Call(func=function, args=[first, second, *rest]):
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name not in SYMMETRIC and not any(isinstance(each, ast.Starred) for each in (first, second)):
                yield "arguments", node, changed(node, args=[second, first, *rest])


def bounds(node: ast.AST) -> list[ast.expr]:
    """List the computed bounds of a slice or of a range."""
    match node:
        case ast.Slice():
            ends = [node.lower, node.upper]
        case ast.Call(func=ast.Name(id="range"), args=arguments):
            ends = [*arguments[:2]]
        case _:
            ends = []
    return [end for end in ends if end is not None and not isinstance(end, ast.Constant | ast.Starred)]

"""Rewrites Rust sources so that many mutants are compiled into one binary, where a number switches one of them on.

A mutant is an entry of `cargo mutants --list --json`, with an `id`. Marks in comments say which code belongs to which
mutant, so that a compiler error can be attributed to the mutants that do not compile.

Needs tree-sitter and tree-sitter-rust: pip install tree-sitter tree-sitter-rust
"""

import re
from collections import defaultdict

import tree_sitter
import tree_sitter_rust

PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))

# The code that the switches of a crate need, appended to its lib.rs.
SWITCH = '''
/// Whether this mutant is switched on.
pub(crate) fn mutant(id: u32) -> bool {
    static ON: std::sync::LazyLock<u32> =
        std::sync::LazyLock::new(|| std::env::var("MUTANT").ok().and_then(|id| id.parse().ok()).unwrap_or(0));
    *ON == id
}
'''

# For each kind of mutant, the nodes of the syntax tree that it may replace.
NODES = {
    "BinaryOperator": ("binary_expression", "compound_assignment_expr"),
    "UnaryOperator": ("unary_expression",),
    "FnValue": ("block",),
    "MatchArmGuard": ("match_pattern",),
    "MatchArm": ("match_arm",),
    "StructField": ("field_initializer", "shorthand_field_initializer"),
}


class Source:
    """A source file with switches for some mutants."""

    def __init__(self, text, mutants):
        self.text = text
        self.root = PARSER.parse(text).root_node
        self.at = defaultdict(list)
        self.unswitchable = set()
        starts = [0]
        for line in text.split(b"\n"):
            starts.append(starts[-1] + len(line) + 1)
        for mutant in mutants:
            node = self._node(mutant, starts)
            if node is None:
                self.unswitchable.add(mutant["id"])
            else:
                self.at[node.id].append(mutant)

    def rewritten(self):
        """The file with all its switches."""
        return self.text[:self.root.start_byte] + self._emit(self.root).encode() + self.text[self.root.end_byte:]

    def _node(self, mutant, starts):
        """The node that is replaced while the mutant is on; None if a switch is not possible there."""
        begin, end = (self._offset(mutant["span"][side], starts) for side in ("start", "end"))
        genre = mutant["genre"]
        node = self.root.descendant_for_byte_range(begin, begin + 1 if genre == "StructField" else end)
        while node and node.type not in NODES.get(genre, ()):
            node = node.parent
        if not node:
            return None
        if genre == "BinaryOperator":
            return node if node.child_by_field_name("operator").start_byte == begin else None
        if genre == "FnValue":
            function = node.parent
            words = [word for child in function.children if child.type == "function_modifiers" for word in child.text.split()]
            return node if function.type == "function_item" and b"const" not in words else None
        if genre == "MatchArmGuard":
            guard = node.child_by_field_name("condition")
            return guard if guard and guard.start_byte == begin else None
        if genre == "MatchArm":
            return node.child_by_field_name("pattern")
        if genre == "StructField":
            return node if self._base(node) else None
        return node

    def _offset(self, place, starts):
        start = starts[place["line"] - 1]
        line = self.text[start:starts[place["line"]] - 1].decode()
        return start + len(line[:place["column"] - 1].encode())

    def _base(self, field):
        """The `..base` of a struct expression."""
        bases = [child for child in field.parent.children if child.type == "base_field_initializer"]
        return bases[0].children[-1].text.decode() if bases else None

    def _plain(self, node):
        return self.text[node.start_byte:node.end_byte].decode()

    def _emit(self, node):
        parts, at = [], node.start_byte
        for child in node.children:
            parts += [self.text[at:child.start_byte].decode(), self._emit(child)]
            at = child.end_byte
        inner = "".join(parts) + self.text[at:node.end_byte].decode()
        mutants = self.at.get(node.id)
        return self._switched(node, mutants, inner) if mutants else inner

    def _switched(self, node, mutants, inner):
        genre = mutants[0]["genre"]
        if genre == "BinaryOperator":
            left, right = (self._plain(node.child_by_field_name(side)) for side in ("left", "right"))
            others = "".join(
                marked(each, f"if {on(each)} {{ {left} {each['replacement']} {right} }}") + " else " for each in mutants)
            is_statement = node.type == "compound_assignment_expr" and node.parent.type == "expression_statement"
            return f"{{{others}{{ {inner} }}}}" if is_statement else f"({others}{{ {inner} }})"
        if genre == "UnaryOperator":
            bare = self._plain(node.children[1])
            return f"({marked(mutants[0], f'if {on(mutants[0])} {{ {bare} }}')} else {{ {inner} }})"
        if genre == "FnValue":
            returns = "".join(marked(each, f"if {on(each)} {{ return {each['replacement']}; }}") for each in mutants)
            return "{ " + returns + inner[1:]
        if genre == "MatchArmGuard":
            for each in mutants:
                side = f"{on(each)} ||" if each["replacement"].startswith("true") else f"!{on(each)} &&"
                inner = f"({marked(each, side)}({inner}))"
            return inner
        if genre == "MatchArm":
            off = marked(mutants[0], f"!{on(mutants[0])}")
            if node.child_by_field_name("condition"):
                guarded = inner.index(" if ") + len(" if ")
                return f"{inner[:guarded]}{off} && ({inner[guarded:]})"
            return f"{inner} if {off}"
        name, value = self._plain(node), self._plain(node)
        if node.type == "field_initializer":
            name, value = node.child_by_field_name("field").text.decode(), inner[inner.index(":") + 1:]
        base = marked(mutants[0], f"if {on(mutants[0])} {{ ({self._base(node)}).{name} }}")
        return f"{name}: {base} else {{ {value} }}"


def on(mutant):
    return f"crate::mutant({mutant['id']})"


def marked(mutant, code):
    return f"/*<{mutant['id']}*/{code}/*{mutant['id']}>*/"


def blamed(messages, read):
    """The mutants in or next to whose code the compiler reported errors. `read` returns a file as it was compiled."""
    marks, found = {}, set()
    for message in messages:
        spans = [span for span in message["spans"] if span["is_primary"]] or message["spans"]
        for span in spans:
            while span.get("expansion"):
                span = span["expansion"]["span"]
            file = span["file_name"]
            if file not in marks:
                marks[file] = marks_of(read(file))
            begin, end = span["byte_start"], span["byte_end"]
            inside = [(last - first, id) for first, last, id in marks[file] if first <= begin and end <= last]
            over = [id for first, last, id in marks[file] if first < end and begin < last]
            beside = [id for first, last, id in marks[file] if min(abs(first - begin), abs(last - begin)) < 300]
            found |= {min(inside)[1]} if inside else set(over or beside)
    return found


def marks_of(text):
    return [(mark.start(), text.index(b"/*" + mark.group(1) + b">*/", mark.start()), int(mark.group(1)))
            for mark in re.finditer(rb"/\*<(\d+)\*/", text)]

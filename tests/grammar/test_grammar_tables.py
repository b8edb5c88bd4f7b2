"""The committed tables are those of the grammar, and the grammar has no conflict."""

import re
import subprocess
import sys

from texpr.grammar.text.builder import Builder
from texpr.grammar.text.lexer import BAD, SIGN_KINDS, WORD_KINDS
from texpr.grammar.text.tablegen import GRAMMAR_FILE, build_lark, build_tables
from texpr.grammar.text.tables import END, PASS, SPLICE, TABLE_FILE, load_tables
from texpr.grammar.words import FUNCTION_NAMES, KEYWORDS, RESERVED, STATEMENT_WORDS, TYPE_NAMES


def test_the_grammar_is_lalr_without_conflicts_under_strict_checks() -> None:
    assert build_lark(strict=True).parser is not None


def test_parsing_needs_no_lark() -> None:
    imported = "import sys; from texpr.grammar.text.parser import parse_text"
    program = f"{imported}; parse_text('x = 1'); print('lark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_committed_tables_are_fresh() -> None:
    assert build_tables() == TABLE_FILE.read_text(encoding="utf-8"), "run: python -m texpr.grammar.text.tablegen"


def test_every_action_of_the_tables_has_its_method() -> None:
    actions = {p.action for p in load_tables().productions} - {PASS, SPLICE}
    methods = {name.removeprefix("on_") for name in vars(Builder) if name.startswith("on_")}
    assert actions == methods


def test_the_lexer_makes_every_terminal_and_no_other() -> None:
    made = {*WORD_KINDS.values(), *SIGN_KINDS.values(), "NAME", "NUMBER", "STRING", END}
    assert made == set(load_tables().terminals)
    assert BAD not in made


def test_the_words_of_the_grammar_are_the_reserved_words() -> None:
    text = GRAMMAR_FILE.read_text(encoding="utf-8")
    excluded = re.search(r"NAME: /\(\?!\(([a-z|]+)\)", text)
    assert excluded is not None and tuple(excluded.group(1).split("|")) == KEYWORDS
    assert set(STATEMENT_WORDS) <= set(KEYWORDS)
    assert len(RESERVED) == len(KEYWORDS) + len(TYPE_NAMES) + len(FUNCTION_NAMES)
    for word, kind in WORD_KINDS.items():
        assert load_tables().terminals[kind] in (word, "")


def test_larks_own_lexer_and_ours_agree_on_words_and_signs() -> None:
    from texpr.grammar.source import SourceText
    from texpr.grammar.text.lexer import tokenise

    text = "max= min=3 max (x) a-=-b .. 1..2 0x1F 1e-6 1.5 == = != <= >= < > + - * / % | # . , : ; { } [ ] ( ) "
    text += ' "a \\" b" -- comment\n' + " ".join(RESERVED - {"max", "min"}) + " a--b"
    ours = [(t.kind, t.text) for t in tokenise(SourceText("t", text)).tokens]
    theirs = [(t.type, str(t)) for t in build_lark().lex(text)]
    assert ours == theirs

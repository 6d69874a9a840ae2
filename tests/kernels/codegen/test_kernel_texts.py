"""Texts of kernels as people read them: the expression on top, nothing that is not used, no loop over one element."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.c.forms import library
from neonlike.kernels.c.toolchain import find_compiler
from neonlike.kernels.codegen.emit import expression
from neonlike.kernels.codegen.headers import names_in
from neonlike.kernels.codegen.tidy import tidied
from neonlike.kernels.cuda.forms import library as cuda_library
from neonlike.optree.dtypes import F32, F64, DTypeRule
from neonlike.optree.functions import F
from neonlike.optree.ops import OPS
from tests.support.engines import needs_compiler

pytestmark = [pytest.mark.engines("c"), pytest.mark.cpu_only("texts of kernels")]

FUNCTION = """\
static void part(const void *g, int64_t lo, int64_t hi)
{
    const int64_t length = g->sizes->length, ahead = g->sizes->ahead; /* rows */
    (void)ahead;

    float *a0 = g->a0 + most(length, 3);
      float *o0 = g->o0;
    (void)a0, (void)o0;
    for (int64_t k = lo; k < hi; k++) {
        const int64_t at = k;
        (void)at;
        if (k)
          for (int l = 0; l < 4; l++)
              use(a0[l]);
        else {
            use(length);
        }
    }
}
"""
TIDY = """\
static void part(const void *g, int64_t lo, int64_t hi)
{
    const int64_t length = g->sizes->length; /* rows */
    float *a0 = g->a0 + most(length, 3);
    for (int64_t k = lo; k < hi; k++) {
        if (k)
            for (int l = 0; l < 4; l++)
                use(a0[l]);
        else {
            use(length);
        }
    }
}
"""


def test_unused_locals_go_and_lines_are_as_deep_as_their_braces() -> None:
    assert tidied(FUNCTION) == TIDY
    assert tidied(TIDY) == TIDY


def test_a_local_goes_with_the_one_that_alone_needed_it() -> None:
    text = "int f(int a)\n{\n    int b = a;\n    int c = b + 1;\n    (void)b, (void)c;\n    return a;\n}\n"
    assert tidied(text) == "int f(int a)\n{\n    return a;\n}\n"
    text = "int f(int a)\n{\n    {\n        int b = a;\n        (void)b;\n    }\n    int b = 2;\n    return b;\n}\n"
    assert "int b = a" not in tidied(text) and "int b = 2" in tidied(text), "each is used in its own braces"


def test_unused_macros_and_empty_functions_go_with_their_calls() -> None:
    text = (
        "#define USED 2 /* them */\n#define UNUSED 3\n\n/* Nothing. */\nstatic void nothing(int a)\n{\n    (void)a;\n"
        "}\n\nint f(int a)\n{\n    nothing(a);\n    if (a)\n        nothing(a);\n    return USED;\n}\n"
    )
    assert tidied(text) == "#define USED 2 /* them */\n\nint f(int a)\n{\n    return USED;\n}\n"


@pytest.mark.parametrize("language", ["c", "cuda"])
def test_each_function_of_an_op_is_found_in_a_header(language: str) -> None:
    headers = library() if language == "c" else cuda_library()
    found = set()
    for spec in OPS.values():
        for dtype in (F32, F64):
            if not spec.c or spec.dtype is DTypeRule.WHOLE:
                continue
            text = expression(spec, ["a", "b", "c", "d"], dtype, language)
            for name in re.findall(r"\bnl_\w+(?=\()", text):
                (header,) = set(headers.used_by([name])) - set(headers.always)
                stem = re.escape(name.removesuffix("_f32").removesuffix("_f64"))
                closure = "".join(headers.closure([header]).values())
                assert re.search(rf"\b{stem}(_f32|_f64|_##|##)", closure), f"{name} is not defined in {header}"
                found.add(header)
    assert len(found) > 1


@pytest.mark.parametrize("header", sorted(library().texts.keys() - library().parts.keys()))
def test_a_header_needs_no_other_before_it(header: str, tmp_path: Path) -> None:
    needs_compiler()
    compiler = find_compiler()
    assert compiler is not None
    for name, text in library().closure([header]).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "alone.c").write_text(f'#include "{header}"\n')
    flags = [flag for flag in compiler.flags if flag != "-shared"]
    command = [*compiler.command, *flags, "-Werror=implicit-function-declaration", "-fsyntax-only", "alone.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_integers_have_headers_of_their_own() -> None:
    assert library().used_by(["nl_wrap_add_i64"]) == ["intmath.h"]
    assert library().used_by(["nl_wrap_add_i32", "nl_sat_i16_u8"]) == ["intmath_narrow.h"]
    assert library().used_by(names_in("a = nl_sat_f32_i8(b);")) == ["vecmath.h"]
    assert library().includes("malloc(8), -INFINITY") == "#include <math.h>\n#include <stdlib.h>\n"
    assert set(library().closure(["vecmath_power.h"])) == {
        "vecmath.h", "vecmath_f32.h", "vecmath_f64.h", "vecmath_power.h", "vecmath_small.h",
    }  # fmt: skip


EXPRESSIONS: Any = {
    "map": lambda x, y: F.sig(x * 2 + y),
    "sum": lambda x, y: x + F.sum(y, 1),
    "softmax of rows": lambda x, y: F.softmax(x, 1),
    "softmax of columns": lambda x, y: F.softmax(x, 0) * y,
    "place": lambda x, y: x * F.argmax(x, 1) + F.max(y, 0),
}


@pytest.mark.parametrize("make", EXPRESSIONS.values(), ids=EXPRESSIONS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int16"])
def test_kernels_start_with_their_expression_and_hold_nothing_unused(be: Backend, make: Any, dtype: str) -> None:
    x, y = (be.array(np.ones((300, 70)), dtype=dtype, name=name) for name in "xy")
    out = be.empty((300, 70))
    whole = be.explain(make(x, y), out)
    texts = whole.split("  kernel\n")[1:]
    assert texts
    for text in texts:
        first, *_ = text.splitlines()
        assert re.fullmatch(r" {4}/\* .*[xy].* \*/", first), first
        assert "(void)" not in text and "\n\n\n" not in text
        assert not re.search(r"for \(int \w+ = 0; \w+ < 1;", text)
        for macro in re.findall(r"#define (\w+)", text):
            assert len(re.findall(rf"\b{macro}\b", text)) > 1, macro
        code = text.partition("#include")[2]
        for header in re.findall(r'#include "(.*)"', text):
            assert header in library().used_by(names_in(code)), header
        used = dict(zip(("<math.h>", "<stdlib.h>"), ("INFINITY" in code or "isfinite" in code, "malloc" in code)))
        assert {name for name in used if name in text} == {name for name, is_used in used.items() if is_used}

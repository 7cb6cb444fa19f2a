"""`{small-gpt} 4`: step 4 of the model that grows from page to page, with the lines marked that the step changes.

The steps are whole files in chapters/small_gpt, each of which runs by itself. What the directive holds says in a
sentence what is new.
"""

import difflib
from pathlib import Path

from sphinx.util.docutils import SphinxDirective

FOLDER = "chapters/small_gpt"

BOX = """\
:::::{{dropdown}} Your own GPT, step {number} of {all}: {title}
:class-container: small-gpt

{text}

The whole file: {{download}}`{name} </{folder}/{name}>`. {marked} Run it with `python {name}`; it needs PyTorch and
nothing else. All steps are listed {{ref}}`on the first page <sec-small-gpt>`.

```{{literalinclude}} /{folder}/{name}
:language: python
{lines}
```
:::::
"""


def steps(root: Path) -> list[Path]:
    return sorted((root / FOLDER).glob("step*.py"))


def title(step: Path) -> str:
    """The docstring's words behind the colon."""
    return step.read_text("utf-8").split('"""')[1].partition(": ")[2].rstrip(".")


def changed(before: str, after: str) -> list[int]:
    """The numbers of the lines that are new or other ones, the docstring and empty lines left out."""
    old, new = before.splitlines(), after.splitlines()
    matches = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    lines = [i for kind, _, _, start, end in matches if kind in ("insert", "replace") for i in range(start, end)]
    return [i + 1 for i in lines if i and new[i].strip()]


class SmallGPT(SphinxDirective):
    required_arguments = 1
    has_content = True

    def run(self):
        every, number = steps(Path(self.env.srcdir)), int(self.arguments[0])
        if not 1 <= number <= len(every):
            raise self.error(f"{FOLDER} has steps 1 to {len(every)}, and no step {number}")
        step = every[number - 1]
        marked = lines = ""
        if number > 1:
            before = every[number - 2]
            self.env.note_dependency(str(before))
            new = changed(before.read_text("utf-8"), step.read_text("utf-8"))
            marked = f"The marked lines are new since step {number - 1}."
            lines = f":emphasize-lines: {','.join(map(str, new))}"
        text = BOX.format(
            number=number,
            all=len(every),
            title=title(step),
            text="\n".join(self.content),
            name=step.name,
            folder=FOLDER,
            marked=marked,
            lines=lines,
        )
        return self.parse_text_to_nodes(text)


def setup(app):
    app.add_directive("small-gpt", SmallGPT)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

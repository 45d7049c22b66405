"""Drives the page of `trace serve` in headless Chromium. Checks its speed, that it answers like `trace why` and, for a small
trace, like a model in this file, how it shows traces without records and hostile names, that it follows a mount, that it
prints nothing on the console, and (with AXE=axe.min.js) that axe-core finds nothing. Usage: page.py BACKSTITCH TRACE [PICTURES]"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from playwright.sync_api import sync_playwright

# Limits, which a busy machine may need to relax.
LOAD_SECONDS = float(os.environ.get("LOAD_SECONDS", "2"))
FRAMES_PER_SECOND = float(os.environ.get("FRAMES_PER_SECOND", "30"))
KEYS_PER_SECOND = 40
EVENTS = 100_000


def why(backstitch, trace, *words):
    done = subprocess.run([backstitch, "trace", "why", trace, *words], stdout=subprocess.PIPE, check=True, text=True)
    return done.stdout.strip()


@contextlib.contextmanager
def served(backstitch, trace):
    """The address at which the trace is served."""
    server = subprocess.Popen([backstitch, "trace", "serve", trace], stdout=subprocess.PIPE, text=True)
    try:
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        server.wait()


class Model:
    """Interprets the records of a small trace. It ignores runs of several blocks, and patches that become others."""

    def __init__(self, backstitch, trace):
        done = subprocess.run([backstitch, "trace", "show", trace, "--json"], stdout=subprocess.PIPE, check=True, text=True)
        self.events = [json.loads(line) for line in done.stdout.splitlines()]

    def all(self, event, **words):
        return [of for of in self.events if of["event"] == event and all(of.get(key) == value for key, value in words.items())]

    def at(self, record):
        """The patches that are not on the disk after a record, with those that they wait for, and the blocks in flight."""
        waits, flying = {}, {}
        for of in self.events:
            if of["record"] > record:
                break
            if of["event"] in ("create", "merge"):
                waits.setdefault(of["patch"], set()).update(of["after"])
            elif of["event"] == "wait":
                waits.setdefault(of["patch"], set()).add(of["before"])
            elif of["event"] == "write":
                flying[of["block"]] = of["patch"]
            elif of["event"] == "flushed":
                flying.clear()
            elif of["event"] == "commit":
                waits.pop(of["patch"], None)
        return {patch: {before for before in befores if before in waits and before != patch} for patch, befores in waits.items()}, flying

    def rounds(self, waits, patch):
        return 1 + max((self.rounds(waits, before) for before in waits[patch]), default=0)


class Page:
    def __init__(self, page, address):
        self.page = page
        self.address = address
        self.complaints = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self.look)

    def look(self, request):
        if not request.url.startswith((self.address, "data:")):
            self.complaints.append("something is fetched from elsewhere: " + request.url)

    def until(self, expression, wanted=True):
        """Waits until an expression has a value. (Playwright's own way of waiting needs `eval`, which the page forbids.)"""
        ends = time.monotonic() + 15
        while (found := self.page.evaluate(expression)) != wanted:
            assert time.monotonic() < ends, f"{expression} stays {found!r}, and {wanted!r} is waited for"
            time.sleep(0.005)

    def load(self):
        began = time.monotonic()
        self.page.goto(self.address)
        self.until("document.body.dataset.ready === 'true' && document.body.dataset.frames > 0")
        return time.monotonic() - began

    def ask(self, path):
        return self.page.evaluate("async (path) => (await fetch(path)).json()", path)

    def go(self, record):
        self.page.evaluate("record => go(record)", record)
        self.rest(record)

    def rest(self, record=None):
        if record is None:
            record = self.page.evaluate("at")
        self.until("document.body.dataset.rested", str(record))

    def answer(self, button, is_new=True):
        if is_new:
            self.page.evaluate("document.getElementById('answer').textContent = ''")
        self.page.click("#" + button)
        self.until("document.getElementById('answer').textContent !== ''")
        return self.page.text_content("#answer").strip()

    def choose(self, patch):
        self.page.dispatch_event(f"#graph g[data-patch='{patch}']", "click")
        self.until(f"chosen === {patch} && block !== null && block.patches !== undefined")
        self.rest()

    def press(self, key):
        self.page.keyboard.press(key)
        self.until("!isAsking")
        self.rest()

    def patches(self):
        found = self.page.evaluate("[...document.querySelectorAll('#graph g[data-patch]')].map(g => Number(g.dataset.patch))")
        return set(found)

    def frames(self, key, seconds=2.0):
        """How many steps are drawn in a second while a key is held down."""
        count = "Number(document.body.dataset.frames)"
        first, began = self.page.evaluate(count), time.monotonic()
        presses = 0
        while (passed := time.monotonic() - began) < seconds:
            # A little faster than a keyboard repeats a key.
            if presses < passed * KEYS_PER_SECOND:
                self.page.keyboard.press(key)
                presses += 1
            else:
                time.sleep(0.002)
        return (self.page.evaluate(count) - first) / (time.monotonic() - began)


def check_speed(page, about):
    assert about["records"] >= EVENTS, f"only {about['records']} records"
    # The moment with the most patches to draw, one by one and in clusters.
    line = page.ask("line?from=0&to=999999999")
    most = max(line["not_on_disk"], key=lambda sample: sample[1])
    single = max((s for s in line["not_on_disk"] if s[1] <= 1000), key=lambda sample: sample[1])
    for record, patches in (most, single):
        for key in ("ArrowRight", "ArrowLeft"):
            page.go(max(300, record - 100))
            rate = page.frames(key)
            page.rest()
            print(f"page: {patches} patches, {key}: {rate:.0f} frames a second")
            assert rate >= FRAMES_PER_SECOND, f"{key} at record {record}: {rate:.1f} frames a second"


def check_stability(page, single):
    """A step does not move what is shown both before and after it, and the page makes the whole graph of the changes."""
    spots = """() => Object.fromEntries([...document.querySelectorAll('#graph g[role=button]')]
        .map(g => [g.children[1].textContent, g.getAttribute('transform')]))"""
    page.go(single)
    before = page.page.evaluate(spots)
    for record in range(single + 1, single + 40):
        page.page.keyboard.press("ArrowRight")
        page.rest(record)
        after = page.page.evaluate(spots)
        moved = [patch for patch in before if patch in after and before[patch] != after[patch]]
        assert not moved, f"record {record} moves {moved}"
        before = after
        # Each question of ours has the next step tell the whole graph.
        if record % 9 == 0:
            drawn = page.page.evaluate("({ nodes: shown.graph.nodes, edges: shown.graph.edges.map(({ after, before }) => ({ after, before })) })")
            graph = page.ask(f"moment?record={record}&by=block")["graph"]
            assert drawn == {"nodes": graph["nodes"], "edges": graph["edges"]}, record


def check_answers(page, backstitch, trace, record):
    page.go(record)
    moment = page.ask(f"moment?record={record}")
    at, graph = f"#{moment['number']}", moment["graph"]
    # A patch that waits for another one.
    edge = graph["edges"][len(graph["edges"]) // 2]
    after, before = edge["after"], edge["before"]
    page.choose(after)
    assert f"▸ p{after} " in page.page.text_content("#block")
    assert page.answer("dirty") == why(backstitch, trace, "--at", at, "--patch", str(after))
    forbidden = why(backstitch, trace, "--at", at, "--with", str(after), "--without", str(before))
    assert forbidden.startswith(f"no crash leaves p{after} without p{before}"), forbidden
    page.answer("crash")
    page.page.dispatch_event(f"#graph g[data-patch='{before}']", "click")
    page.until("document.getElementById('answer').textContent.startsWith('no crash')")
    assert page.page.text_content("#answer").strip() == forbidden
    # Each of two patches alone, and a cut with only the waiting one on the disk.
    cut = page.ask(f"why/cut?record={record}&patches={after}")
    assert not cut["answer"]["is_possible"]
    assert any(broken["without"]["patch"] == before for broken in cut["answer"]["broken"]), cut["text"]


def check_waits(page, backstitch, trace):
    waits = page.ask("line?from=0&to=999999999")["waits"]
    single = [wait for wait in waits if "number" in wait]
    assert single, "the trace has no single waits"
    wait = single[len(single) // 2]
    page.go(wait["first"])
    assert wait["number"] in page.ask(f"moment?record={wait['first']}")["waits"]
    page.page.evaluate(f"document.getElementById('tickets').replaceChildren(new Option('', {wait['number']}))")
    found = page.answer("wait")
    assert found == why(backstitch, trace, "--wait", str(wait["number"])), found


def check_extent(page, record):
    """The page says which part of a large graph is not drawn."""
    page.go(record)
    graph = page.ask(f"moment?record={record}")["graph"]
    text = page.page.text_content("#extent").replace(",", "")
    assert graph["clusters_left_out"] > 0 and graph["patches_left_out"] > 0, "everything is drawn"
    assert f"{graph['clusters_left_out']} smaller ones with {graph['patches_left_out']} patches are not" in text, text
    assert page.page.is_hidden("#all")
    # A chosen cluster hides the others, even if it has no patches.
    page.page.dispatch_event("#graph g[role=button] >> nth=0", "click")
    page.until("!document.getElementById('all').hidden")
    assert page.page.text_content("#extent").startswith("Only ")
    page.go(0)
    text = page.page.text_content("#extent")
    assert text.startswith("Only ") and ": 0 of " in text, text
    page.page.click("#all")
    page.until("document.getElementById('all').hidden")
    page.rest()


def check_together(page, record):
    """Blocks and operations are numbered separately: the drawing has the names of those that were chosen last."""
    page.go(record)
    for by in ("operation", "block"):
        page.page.evaluate("go(at + 1); go(at - 1)")
        page.page.select_option("#by", by)
        page.until("!isAsking && shown.by", by)
        named = page.page.evaluate("[...document.querySelectorAll('#graph g > title')].map(title => title.textContent.split(': ')[0])")
        clusters = page.ask(f"moment?record={record}&by={by}")["graph"]["clusters"]
        assert sorted(named) == sorted(of["name"].split(": ")[0] for of in clusters), by
    page.rest()


def check_run(page):
    """The user chooses which block of a patch of several blocks is shown. If one has arrived, the others need not have."""
    record = page.ask("next?kind=batch&record=0")["record"]
    page.go(record)
    flights = page.ask(f"moment?record={record}")["flights"]
    of_patch = {}
    for of in flights:
        for patch in of["patches"]:
            of_patch.setdefault(patch, []).append(of)
    patch, (first, second, *_) = next((patch, blocks) for patch, blocks in of_patch.items() if len(blocks) > 1)
    page.page.evaluate(f"choose({patch}); 0")
    page.until("block !== null && block.patches !== undefined && !document.getElementById('parts').hidden")
    for of in (second, first):
        page.page.select_option("#part", str(of["block"]))
        page.until("block.block", of["block"])
        page.until(f"document.getElementById('block').textContent.startsWith({json.dumps(of['name'])})")
        page.rest()
        assert page.page.evaluate("document.getElementById('part').value") == str(of["block"])
    page.answer("cut")
    page.page.check(f"#boxes input[value='{first['block']}']")
    page.until(f"/a crash now can leave .*1 of \\d+ blocks of p{patch}/.test(document.getElementById('answer').textContent)")
    page.page.click("#untick")
    page.page.keyboard.press("Escape")
    page.until("document.getElementById('parts').hidden")
    page.rest()


def check_prepared(page, model):
    """Three small files in a directory, and a sync: a name waits for its inode, and an inode for contents and bitmaps."""
    settle = model.all("settle")[0]["record"]
    waits, _ = model.at(settle)
    name = max((patch for patch in waits if model.all("create", patch=patch)[0]["kind"] != "empty"), key=lambda patch: model.rounds(waits, patch))
    inode = next(of["patch"] for of in model.all("create", operation=2) if of.get("class") == "metadata")
    contents = next(of for of in model.all("create", operation=3) if of.get("class") == "data")
    page.go(settle)
    assert page.patches() == set(waits), page.patches() ^ set(waits)
    # Bitmaps and contents; inodes; names of the files; the inode of the directory; the name of the directory.
    assert model.rounds(waits, name) == 5
    page.choose(name)
    dirty = page.answer("dirty")
    assert "5 rounds of writing until" in dirty, dirty
    chain = [int(patch) for patch in re.findall(r"^ +p(\d+),", dirty, re.M)]
    assert len(chain) == 5 and chain[0] == name, dirty
    assert all(before in waits[after] for after, before in zip(chain, chain[1:])), dirty
    assert page.page.text_content("#asked") == f"At #{settle}, why p{name} is dirty:"
    # After a step, the answer is that of another moment.
    page.press("ArrowRight")
    assert "the page is at" in page.page.text_content("#asked") and page.page.get_attribute("#answer", "class") == "old"
    page.press("ArrowLeft")
    assert page.page.get_attribute("#answer", "class") == ""
    page.answer("crash")
    page.page.dispatch_event(f"#graph g[data-patch='{inode}']", "click")
    page.until(f"document.getElementById('answer').textContent.startsWith('no crash leaves p{name} without p{inode}')")
    page.choose(contents["patch"])
    page.answer("crash")
    page.page.dispatch_event(f"#graph g[data-patch='{inode}']", "click")
    page.until(f"document.getElementById('answer').textContent.startsWith('a crash can leave p{contents['patch']},')")
    wait = model.all("awaited")[0]
    ends = model.all("reached", ticket=wait["ticket"])[0]["record"]
    batches = [str(of["batch"]) for of in model.all("batch") if wait["record"] < of["record"] < ends]
    found = page.answer("wait")
    assert found.startswith(f"wait {wait['ticket']} began") and "5 rounds at least" in found, found
    assert len(batches) == 5 and found.endswith("after batches " + ", ".join(batches)), found
    # Of two questions the last one is shown, whichever answer arrives first.
    page.page.evaluate("""window.real = fetch; fetch = (path) => path.startsWith("why/wait")
        ? new Promise((done) => setTimeout(() => done(real(path)), 400)) : real(path); sayWait(); sayDirty(); 0""")
    time.sleep(1)
    assert "1 round of writing until" in page.page.text_content("#answer"), page.page.text_content("#answer")
    page.page.evaluate("fetch = real; 0")
    check_prepared_cut(page, model, contents)
    check_prepared_block(page, model)


def check_prepared_cut(page, model, contents):
    record = model.all("batch")[0]["record"]
    waits, flying = model.at(record)
    page.go(record)
    assert f"{len(flying)} blocks are on the way" in page.page.text_content("#count")
    assert page.page.text_content(f"#graph g[data-patch='{contents['patch']}'] .standing") == "in flight"
    assert page.answer("cut").startswith("a crash now can leave the disk as it is")
    boxes = page.page.evaluate("[...document.querySelectorAll('#boxes input')].map(box => Number(box.value))")
    assert set(boxes) == set(flying), boxes
    box = f"#boxes input[value='{contents['block']}']"
    page.page.check(box)
    page.until("document.getElementById('asked').textContent.includes('if 1 of 5 blocks')")
    text = page.page.text_content("#answer")
    assert text.startswith("a crash now can leave") and "as it is" not in text, text
    operation = next(of for of in model.all("begin") if of["operation"] == contents["operation"])
    told = [line for line in text.splitlines() if line.strip().startswith("write ")]
    changed = [line for line in told if not line.endswith("nothing of it more")]
    assert len(changed) == 1 and operation["paths"][0] in changed[0], text
    # A step takes neither the tick nor the focus.
    page.press("ArrowRight")
    assert page.page.is_checked(box)
    assert page.page.evaluate(f"document.activeElement === document.querySelector(\"{box}\")")
    page.until("document.getElementById('asked').textContent.startsWith(`At #${shown.number}, if 1 of 5 blocks`)")
    for button, asked in (("tick", "all 5 blocks"), ("untick", "0 of 5 blocks")):
        page.page.click("#" + button)
        page.until(f"document.getElementById('asked').textContent.includes('{asked}')")
        assert page.page.text_content("#answer").startswith("a crash now can leave the disk as it is") == (button == "untick")
    # When the focused patch leaves the graph, the focus stays in the graph.
    page.page.focus(f"#graph g[data-patch='{contents['patch']}']")
    committed = model.all("commit", patch=contents["patch"])[0]["record"]
    page.go(committed)
    assert page.page.evaluate("document.activeElement.id") == "graph"
    page.until("document.getElementById('boxes').children.length === 0")


def check_prepared_block(page, model):
    """A question about a block that was written twice, when nothing of it is left to write."""
    writes = model.all("write")
    block, twice = next((block, found) for block in {of["block"] for of in writes} if len(found := [of["record"] for of in writes if of["block"] == block]) == 2)
    assert len(twice) == 2
    patch = next(of["patch"] for of in writes if of["record"] == twice[1])
    page.go(twice[1] - 1)
    page.choose(patch)
    assert page.page.evaluate("block.block") == block
    records = lambda: [int(record) for record in re.findall(r"^#(\d+) at", page.answer("written"), re.M)]
    assert records() == twice[:1]
    page.press("End")
    assert "Nothing is to be written to it" in page.page.text_content("#block")
    assert records() == twice
    page.press("Escape")
    assert page.page.text_content("#block").startswith("Choose a patch")
    assert "Choose a patch" in page.answer("written")


def check_strange(browser, address):
    """A trace without records causes no exception. A name that reverses the direction of writing, or is too long, hides nothing."""
    context = browser.new_context(viewport={"width": 1500, "height": 950})
    page = Page(context.new_page(), address)
    page.page.goto(address)
    page.until("document.body.dataset.ready", "true")
    assert page.ask("about")["records"] == 0
    assert page.page.text_content("#moment") == "No records"
    assert page.page.evaluate("[...document.querySelectorAll('aside button')].filter(button => !button.disabled && button.checkVisibility()).length") == 0
    for key in ("d", "b", "f", "w", "+", "-", "ArrowRight", "ArrowDown", "End", "Escape"):
        page.page.keyboard.press(key)
    page.page.evaluate("document.getElementById('cut').click()")
    page.page.click("#line")
    about = page.ask("about")
    about["name"] = "a\u202eb" + "x" * 3000
    page.page.route("**/about", lambda route: route.fulfill(json=about))
    page.page.reload()
    page.until("document.body.dataset.ready", "true")
    assert page.page.text_content("#name").startswith("a\\u202eb"), page.page.text_content("#name")[:20]
    assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert not page.complaints, page.complaints
    context.close()


def check_keys(page, wide):
    page.go(wide)
    # With shift an arrow scrolls, and no step is made.
    page.page.evaluate("document.querySelector('main').scrollTo(0, 0)")
    page.page.focus("#graph")
    here = page.page.evaluate("at")
    page.page.keyboard.press("Shift+ArrowDown")
    page.page.keyboard.press("Shift+ArrowRight")
    page.until("document.querySelector('main').scrollTop > 0 && document.querySelector('main').scrollLeft > 0")
    assert page.page.evaluate("at") == here
    page.go(1000)
    page.page.keyboard.press("?")
    assert page.page.is_visible("#help")
    page.page.keyboard.press("Escape")
    for key, kind, back in (("ArrowDown", "operation", 0), ("b", "batch", 0), ("f", "flush", 0), ("ArrowUp", "operation", 1)):
        here = page.page.evaluate("at")
        there = page.ask(f"next?kind={kind}&record={here}&back={back}")["record"]
        page.page.keyboard.press(key)
        page.rest(there)
    page.page.keyboard.press("/")
    operation = page.ask("search?text=create")["found"][5]
    path = operation["label"].split()[-1]
    page.page.keyboard.type(path)
    # By its path: while that is typed, the list shows what begins as it does.
    page.page.click(f"#found button:has-text('create {path}')")
    page.rest(operation["last"])


def check_with_axe(page, what):
    axe = os.environ.get("AXE")
    if not axe:
        return
    page.page.evaluate(open(axe, encoding="utf-8").read() + ";0")
    found = page.page.evaluate("async () => (await axe.run()).violations.map(v => v.id + ': ' + v.nodes.map(n => n.html).slice(0, 3))")
    assert not found, what + ": " + "\n".join(found)
    print(f"page: axe finds nothing in {what}")


def check_looks(page, line, single, theme, pictures):
    """Patches, clusters, the dialog and the boxes of a cut: checks them with axe, and takes pictures for people."""
    def look(what):
        if pictures:
            page.page.screenshot(path=os.path.join(pictures, f"{what}-{theme}.png"))
        check_with_axe(page, f"{what}, {theme}")

    page.go(single)
    look("patches")
    page.go(max(line["not_on_disk"], key=lambda sample: sample[1])[0])
    page.answer("dirty")
    look("clusters")
    page.go(page.ask("next?kind=batch&record=0")["record"])
    page.answer("cut")
    page.page.check("#boxes input >> nth=0")
    page.until("document.getElementById('asked').textContent.includes('if 1 of')")
    look("cut")
    page.page.click("#ask")
    look("help")
    page.page.click("#close")


def check(browser, backstitch, trace, address, began, pictures):
    for theme in ("light", "dark"):
        context = browser.new_context(color_scheme=theme, viewport={"width": 1500, "height": 950})
        page = Page(context.new_page(), address)
        seconds = page.load()
        if theme == "light":
            # Includes the server, which reads the trace first, but not the start of the browser.
            seconds += began
        print(f"page: loaded in {seconds:.2f} s ({theme})")
        assert seconds <= LOAD_SECONDS
        about = page.ask("about")
        line = page.ask("line?from=0&to=999999999")
        single = max((s for s in line["not_on_disk"] if s[1] <= 400), key=lambda sample: sample[1])[0]
        if theme == "light":
            check_speed(page, about)
            check_stability(page, single)
            check_waits(page, backstitch, trace)
            check_extent(page, max(line["not_on_disk"], key=lambda sample: sample[1])[0])
            check_together(page, max(line["not_on_disk"], key=lambda sample: sample[1])[0])
            check_run(page)
            check_keys(page, single)
        check_answers(page, backstitch, trace, single)
        check_looks(page, line, single, theme, pictures)
        assert not page.complaints, page.complaints
        context.close()


def check_small(browser, backstitch):
    with tempfile.TemporaryDirectory() as folder:
        trace, head = os.path.join(folder, "small.trace"), os.path.join(folder, "head.trace")
        words = ["bench", "micro-create", "--memory", "--files", "3", "--max-bytes", "4K", "--size", "64M", "--record", trace]
        subprocess.run([backstitch, *words], stdout=subprocess.DEVNULL, check=True)
        with served(backstitch, trace) as address:
            context = browser.new_context(viewport={"width": 1500, "height": 950})
            page = Page(context.new_page(), address)
            page.load()
            check_prepared(page, Model(backstitch, trace))
            assert not page.complaints, page.complaints
            context.close()
        # What a recorder had written when it was killed immediately.
        with open(trace, "rb") as file:
            start = file.read(16)
            start += file.read(int.from_bytes(start[12:16], "little"))
        with open(head, "wb") as file:
            file.write(start)
        with served(backstitch, head) as address:
            check_strange(browser, address)


def check_rollback(browser, backstitch):
    """A patch that is left out of the version of its block in flight is marked so."""
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "rollback.trace")
        script = "mkdir A; creat A/f; sync; write A/f 0 3000; unlink A/f; creat A/g; sync"
        words = ["trace", "record", "--script", script, "-o", trace]
        subprocess.run([backstitch, *words], stdout=subprocess.DEVNULL, check=True)
        with served(backstitch, trace) as address:
            context = browser.new_context(viewport={"width": 1500, "height": 950})
            page = Page(context.new_page(), address)
            page.load()
            seen = 0
            for of in Model(backstitch, trace).all("batch"):
                moment = page.ask(f"moment?record={of['record']}&by=block")
                page.go(of["record"])
                for node in moment["graph"]["nodes"]:
                    stands = page.page.text_content(f"#graph g[data-patch='{node['patch']}'] .standing")
                    assert stands == ("rolled back" if node["rolled_back"] else node["standing"]), (node, stands)
                    seen += node["rolled_back"]
            assert seen > 0
            assert not page.complaints, page.complaints
            context.close()


def check_crash(browser, backstitch):
    """The trace of a failure is opened at the moment of the crash, with the patches that its report shows."""
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "crash.trace")
        words = ["crash", "fs", "--ordering", "async", "--script", "mkdir A", "--json", "--record", trace]
        found = subprocess.run([backstitch, *words], stdout=subprocess.PIPE, text=True)
        patches = json.loads(found.stdout)["failures"][0]["graph"]["patches"]
        with served(backstitch, trace) as address:
            context = browser.new_context(viewport={"width": 1500, "height": 950})
            page = Page(context.new_page(), address)
            page.load()
            last = page.ask("about")["records"] - 1
            assert page.page.evaluate("at") == last, (page.page.evaluate("at"), last)
            assert page.patches() == {patch["number"] for patch in patches}, (page.patches(), patches)
            assert not page.complaints, page.complaints
            context.close()


def check_states(browser, backstitch):
    """Of a trace that has its image the page shows what a check and a mount find of the states that a crash can leave."""
    script = "mkdir d; sync; creat d/a; write d/a 0 5000; sync"
    with tempfile.TemporaryDirectory() as folder:
        trace, bare = os.path.join(folder, "states.trace"), os.path.join(folder, "bare.trace")
        for path, more in ((trace, ["--contents"]), (bare, [])):
            words = ["trace", "record", *more, "--script", script, "-o", path]
            subprocess.run([backstitch, *words], stdout=subprocess.DEVNULL, check=True)
        text = "document.getElementById('{}').textContent"
        with served(backstitch, trace) as address:
            context = browser.new_context(viewport={"width": 1500, "height": 950})
            page = Page(context.new_page(), address)
            page.load()
            seen = []
            for of in Model(backstitch, trace).all("batch"):
                page.go(of["record"])
                page.answer("cut")
                states = page.ask(f"states?record={of['record']}")
                some = "One image is" if states["count"] == "1" else states["count"] + " images are"
                page.until(f"{text.format('possible')}.startsWith({json.dumps(some)})")
                found = []
                for index in (0, len(states["offered"]) - 1):
                    page.page.evaluate("document.getElementById('answer').textContent = ''")
                    page.page.evaluate("document.getElementById('states').selectedIndex = 0")
                    page.page.select_option("#states", str(index))
                    page.until(f"{text.format('answer')}.startsWith('a check finds:')")
                    found.append(page.page.text_content("#answer"))
                    ticked = page.page.evaluate("[...document.querySelectorAll('#boxes input:checked')].map(box => Number(box.value))")
                    assert sorted(ticked) == sorted(states["offered"][index]["blocks"])
                # The boxes say the same as the choice.
                page.answer("look")
                page.until(f"{text.format('answer')} === {json.dumps(found[-1])}")
                page.page.evaluate("tickAll(true)")
                page.until(f"{text.format('asked')}.includes('if all')")
                page.answer("look")
                seen.append((found[0], page.page.text_content("#answer")))
            assert all("clean" in first or "consistent" in first for first, _ in seen), seen
            assert any("/d/a" not in first and "- /d/a (5000 bytes)" in last for first, last in seen), seen
            check_with_axe(page, "states, light")
            assert not page.complaints, page.complaints
            context.close()
        with served(backstitch, bare) as address:
            context = browser.new_context(viewport={"width": 1500, "height": 950})
            page = Page(context.new_page(), address)
            page.load()
            page.go(Model(backstitch, bare).all("batch")[0]["record"])
            page.answer("cut")
            page.until(f"{text.format('possible')}.includes('record it with --contents')")
            assert page.page.is_hidden("#states") and page.page.is_hidden("#look")
            assert not page.complaints, page.complaints
            context.close()
    print("page: states are judged")


class Mount:
    """A mount of a new image, which has a file already; nothing where there can be no mount."""

    def __init__(self, backstitch, folder):
        self.backstitch = backstitch
        self.directory = os.path.join(folder, "mnt")
        self.image = os.path.join(folder, "a.img")
        os.mkdir(self.directory)

    def run(self, *words):
        subprocess.run([self.backstitch, *words], stdout=subprocess.DEVNULL, check=True)

    def __enter__(self):
        self.run("mkfs", "-q", "-s", "64M", self.image)
        self.run("mount", self.image, self.directory)
        return self

    def __exit__(self, *_):
        if os.path.ismount(self.directory):
            self.run("umount", self.directory)

    def make(self, name):
        with open(os.path.join(self.directory, name), "w", encoding="utf-8") as file:
            file.write("x" * 5000)


def check_live(browser, backstitch):
    """The page follows a mount, is halted at the moment that it shows, asks there, and follows again."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        print("page: no mount is followed: there is no FUSE")
        return
    with tempfile.TemporaryDirectory() as folder, Mount(backstitch, folder) as mount, served(backstitch, mount.directory) as address:
        context = browser.new_context(viewport={"width": 1500, "height": 950})
        page = Page(context.new_page(), address)
        page.page.goto(address)
        page.until("document.body.dataset.ready", "true")
        lines = "document.getElementById('lines').textContent.includes({})"
        for name in ("first", "second"):
            mount.make(name)
            page.until(lines.format(json.dumps(f"create /{name}")))
        assert page.page.evaluate("isFollowing && shown.patches > 0 && base === ''")
        assert "following: the last " in page.page.text_content("#about")
        check_with_axe(page, "following, light")
        # While nothing happens nothing is drawn.
        frames = page.page.evaluate("document.body.dataset.frames")
        time.sleep(1)
        assert page.page.evaluate("document.body.dataset.frames") == frames
        number, there = page.page.evaluate("shown.number"), page.patches()
        assert there and page.page.is_visible("#follow")
        page.press("l")
        page.until("!isFollowing && !isHalting && shown.number", number)
        assert page.patches() == there, page.patches() ^ there
        assert page.page.evaluate("base").startswith("at/")
        assert "cut off" not in page.page.text_content("#about")
        page.page.fill("#path", "/second")
        page.page.dispatch_event("#path", "change")
        page.page.focus("#graph")
        dirty = page.answer("dirty")
        assert "for write /second 0+5000: waits for nothing" in dirty, dirty
        page.page.fill("#path", "")
        page.page.dispatch_event("#path", "change")
        # What happens meanwhile is not there, until the page follows again.
        mount.make("third")
        page.page.focus("#graph")
        page.press("ArrowLeft")
        page.until("shown.number", number - 1)
        page.press("End")
        page.page.click("#follow")
        page.until(lines.format('"create /third"'))
        assert page.page.text_content("#answer") == ""
        # A question halts it, and so does a step.
        page.page.click("#dirty")
        page.until("document.getElementById('answer').textContent !== '' && !isFollowing")
        page.page.click("#follow")
        mount.make("fourth")
        page.until(lines.format('"create /fourth"'))
        here = page.page.evaluate("shown.number")
        page.page.focus("#graph")
        page.page.keyboard.press("ArrowLeft")
        page.until("!isFollowing && !isAsking && !isHalting && shown.number", here - 1)
        page.page.click("#follow")
        page.until("isFollowing")
        # The end of the mount halts it for good: what there was can be looked at.
        mount.run("umount", mount.directory)
        page.until("!isFollowing && document.getElementById('answer').textContent", "the mount has ended")
        page.until("!isAsking && !isHalting && shown.patches === 0")
        page.go(0)
        assert not page.complaints, page.complaints
        context.close()
    print("page: a mount is followed")


def main():
    backstitch, trace = sys.argv[1:3]
    pictures = sys.argv[3] if len(sys.argv) > 3 else None
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        check_small(browser, backstitch)
        check_crash(browser, backstitch)
        check_rollback(browser, backstitch)
        check_live(browser, backstitch)
        check_states(browser, backstitch)
        began = time.monotonic()
        with served(backstitch, trace) as address:
            began = time.monotonic() - began
            print(f"page: ready to serve in {began:.2f} s")
            check(browser, backstitch, trace, address, began, pictures)
        browser.close()
    print("page: all is well")


if __name__ == "__main__":
    main()

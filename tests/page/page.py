"""Drives the page of `trace serve` in headless Chromium: how fast it is, that it answers as `trace why` does, that it
says nothing on the console, and (with AXE=axe.min.js) what axe-core finds. Usage: page.py BACKSTITCH TRACE [PICTURES]"""

import os
import shutil
import subprocess
import sys
import time

from playwright.sync_api import sync_playwright

# A machine with other work is slower.
LOAD_SECONDS = float(os.environ.get("LOAD_SECONDS", "2"))
FRAMES_PER_SECOND = float(os.environ.get("FRAMES_PER_SECOND", "30"))
KEYS_PER_SECOND = 40
EVENTS = 100_000


def why(backstitch, trace, *words):
    done = subprocess.run([backstitch, "trace", "why", trace, *words], stdout=subprocess.PIPE, check=True, text=True)
    return done.stdout.strip()


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

    def frames(self, key, seconds=2.0):
        """How many steps are drawn in a second while a key is held down."""
        count = "Number(document.body.dataset.frames)"
        first, began = self.page.evaluate(count), time.monotonic()
        presses = 0
        while (passed := time.monotonic() - began) < seconds:
            # As often as a keyboard repeats a key, and a little more.
            if presses < passed * KEYS_PER_SECOND:
                self.page.keyboard.press(key)
                presses += 1
            else:
                time.sleep(0.002)
        return (self.page.evaluate(count) - first) / (time.monotonic() - began)


def check_speed(page, about):
    assert about["records"] >= EVENTS, f"only {about['records']} records"
    # Where the most patches are to be drawn, one by one and put together.
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
    """A step moves nothing that is there before and after it."""
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


def check_answers(page, backstitch, trace, record):
    page.go(record)
    moment = page.ask(f"moment?record={record}")
    at, graph = f"#{moment['number']}", moment["graph"]
    # A patch that waits for another one.
    edge = graph["edges"][len(graph["edges"]) // 2]
    after, before = edge["after"], edge["before"]
    button = f"#graph g[data-patch='{after}']"
    page.page.dispatch_event(button, "click")
    page.until(f"chosen === {after} && block !== null")
    page.rest()
    assert f"▸ p{after} " in page.page.text_content("#block")
    assert page.answer("dirty") == why(backstitch, trace, "--at", at, "--patch", str(after))
    forbidden = why(backstitch, trace, "--at", at, "--with", str(after), "--without", str(before))
    assert forbidden.startswith(f"no crash leaves p{after} without p{before}"), forbidden
    page.answer("crash")
    page.page.dispatch_event(f"#graph g[data-patch='{before}']", "click")
    page.until("document.getElementById('answer').textContent.startsWith('no crash')")
    assert page.page.text_content("#answer").strip() == forbidden
    # Each of two patches alone, and the cut that has only the one that waits.
    cut = page.ask(f"why/cut?record={record}&patches={after}")
    assert not cut["answer"]["is_possible"]
    assert any(broken["without"]["patch"] == before for broken in cut["answer"]["broken"]), cut["text"]


def check_waits(page, backstitch, trace):
    waits = page.ask("line?from=0&to=999999999")["waits"]
    single = [wait for wait in waits if "number" in wait]
    if not single:
        print("page: the trace has no single waits")
        return
    wait = single[len(single) // 2]
    page.go(wait["first"])
    found = page.answer("wait")
    assert found == why(backstitch, trace, "--wait", str(wait["number"])), found


def check_cut(page):
    """A block on its way can have arrived, or not."""
    record = page.ask("next?kind=batch&record=0")["record"]
    page.go(record)
    assert page.answer("cut").startswith("a crash now can leave the disk as it is")
    page.page.check("#flights input >> nth=0")
    page.until("document.getElementById('answer').textContent.includes('patches and no others')")
    assert page.page.text_content("#answer").startswith("a crash now can leave these")


def check_keys(page):
    page.go(1000)
    page.page.focus("#graph")
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
    page.page.click("#found button:has-text('create')")
    page.rest(operation["last"])


def check_with_axe(page, axe):
    page.page.evaluate(open(axe, encoding="utf-8").read() + ";0")
    found = page.page.evaluate("async () => (await axe.run()).violations.map(v => v.id + ': ' + v.nodes.map(n => n.html).slice(0, 3))")
    assert not found, "\n".join(found)
    print("page: axe finds nothing")


def check(backstitch, trace, address, pictures):
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for theme in ("light", "dark"):
            context = browser.new_context(color_scheme=theme, viewport={"width": 1500, "height": 950})
            page = Page(context.new_page(), address)
            seconds = page.load()
            print(f"page: loaded in {seconds:.2f} s ({theme})")
            assert seconds <= LOAD_SECONDS
            about = page.ask("about")
            line = page.ask("line?from=0&to=999999999")
            single = max((s for s in line["not_on_disk"] if s[1] <= 400), key=lambda sample: sample[1])[0]
            if theme == "light":
                check_speed(page, about)
                check_stability(page, single)
                check_answers(page, backstitch, trace, single)
                check_waits(page, backstitch, trace)
                check_cut(page)
                check_keys(page)
            else:
                check_answers(page, backstitch, trace, single)
            page.go(single)
            if pictures:
                page.page.screenshot(path=os.path.join(pictures, f"patches-{theme}.png"))
            if os.environ.get("AXE"):
                check_with_axe(page, os.environ["AXE"])
            page.go(max(line["not_on_disk"], key=lambda sample: sample[1])[0])
            if pictures:
                page.page.screenshot(path=os.path.join(pictures, f"clusters-{theme}.png"))
            assert not page.complaints, page.complaints
            context.close()
        browser.close()


def main():
    backstitch, trace = sys.argv[1:3]
    began = time.monotonic()
    served = subprocess.Popen([backstitch, "trace", "serve", trace], stdout=subprocess.PIPE, text=True)
    try:
        address = served.stdout.readline().strip()
        print(f"page: ready to serve in {time.monotonic() - began:.2f} s")
        assert time.monotonic() - began <= LOAD_SECONDS
        check(backstitch, trace, address, sys.argv[3] if len(sys.argv) > 3 else None)
    finally:
        served.kill()
    print("page: all is well")


if __name__ == "__main__":
    main()

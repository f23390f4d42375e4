"""The page in a real browser: by keyboard alone, at three widths, in the dark, nothing blocked.

With `--screenshots` the pictures of docs/page.md are made anew.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from receiver.web.app import close, create_app, site_of
from tests.support import tiers
from tests.support.architecture import ROOT
from tests.support.node_world import Clock, World
from tests.support.page_reader import HOSTILE
from tests.support.page_world import CLAIMANT, DEVICE, HOLDER, NODE, fill
from tests.support.procs import wait_until
from tests.support.web import running

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.common.exceptions import WebDriverException  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="no chromium with its driver (apt-get install chromium-driver)",
)
IMAGES = ROOT / "docs" / "images"
WIDTHS = (400, 881, 900, 1181, 1600)
PAGES = (
    "",
    f"edge/{HOLDER}",
    "files",
    "groups",
    "groups/root.north",
    "groups/root.north/partitions",
    "groups/root.north/tree?node=root.north.turbine1",
    "owners",
    "quarantine",
    "deletes",
    "retired",
    "lost",
    "tasks",
    "history",
    "verification",
    "nodes",
    f"node/{NODE}",
    f"do/accept-node?node={NODE}",
    "tokens",
    "engine",
    f"do/transfer?device={DEVICE}&sender={CLAIMANT}",
    f"do/adopt?sender={HOLDER}",
    "nothing",
)
EDGES = 10_000 if tiers.is_long() else 1_000


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    clock = Clock(1_790_000_000.0)
    world = World(tmp_path_factory.mktemp("page"), clock=clock)
    app = create_app(world.config, clock=clock)
    site = site_of(app)
    site.access.accept_operator("operators-secret")
    fill(site.node, clock, edges=EDGES)
    yield app
    close(app)


@pytest.fixture(scope="module")
def address(app):
    with running(app, gate=site_of(app).gate) as server:
        host, port = server.addresses[0]
        yield f"http://{host}:{port}/ui/"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tmp_path_factory.mktemp("profile")
    for each in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--no-first-run", "--disable-background-networking", "--force-color-profile=srgb",
        "--hide-scrollbars", "--lang=en", f"--user-data-dir={profile}",
    ):  # fmt: skip
        options.add_argument(each)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield Browser(driver)
    driver.quit()


class Browser:
    """What a person does with it."""

    def __init__(self, driver) -> None:
        self.driver = driver

    def go(self, address):
        self.driver.get(address)

    def wide(self, width, *, dark=False, height=900):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def press(self, *keys):
        self.driver.switch_to.active_element.send_keys(*keys)

    def focused(self):
        return self.driver.switch_to.active_element

    def comes_to(self, name):
        """Wait until the field that a page begins at has the keyboard: it is loaded before."""
        wait_until(lambda: self.focused().get_attribute("name") == name, f"the field {name} has it")

    def tab_to(self, text, most=200):
        for _ in range(most):
            self.press(Keys.TAB)
            if self.focused().text.startswith(text):
                outline = self.focused().value_of_css_property("outline-style")
                assert outline == "solid", "where one is can be seen"
                return self.focused()
        raise AssertionError(f"no way to {text!r} by the keyboard")

    def follow(self, *keys, at=None):
        """Press what leads to another page, and be there: a key is answered before it is."""
        self.driver.execute_script("window.isBefore = true")
        (at or self.focused()).send_keys(*keys)
        # Who asks between two pages may be answered by neither.
        WebDriverWait(self.driver, 60, ignored_exceptions=[WebDriverException]).until(
            lambda it: it.execute_script(
                "return !window.isBefore && document.readyState === 'complete'"
            )
        )

    def text(self):
        return self.driver.find_element(By.TAG_NAME, "main").text

    def said(self):
        """What the browser complained of; a page that is not there is told as well."""
        return [
            each["message"]
            for each in self.driver.get_log("browser")
            if each["level"] != "DEBUG" and "404 (" not in each["message"]
        ]

    def picture(self, name):
        self.driver.save_screenshot(str(IMAGES / f"{name}.png"))


@pytest.fixture
def logged_in(browser, address):
    browser.wide(1300)
    browser.go(address)
    if "login" in browser.driver.current_url:
        browser.follow("operators-secret", Keys.ENTER)
    assert "Fleet" in browser.driver.title
    browser.said()  # what tests before have heard
    return browser


def test_one_logs_in_by_the_keyboard_and_out_again(browser, address):
    browser.wide(1300)
    browser.driver.delete_all_cookies()
    browser.go(f"{address}files?path=root.north")
    browser.comes_to("token")
    browser.follow("wrong", Keys.ENTER)
    assert "not known here" in browser.text()
    browser.comes_to("token")
    browser.follow("operators-secret", Keys.ENTER)
    assert browser.driver.current_url == f"{address}files?path=root.north"
    browser.follow(
        Keys.ENTER, at=browser.driver.find_element(By.CSS_SELECTOR, "header form button")
    )
    assert browser.driver.current_url == f"{address}login"
    browser.driver.back()
    browser.go(address)
    assert "Log in" in browser.driver.title
    assert [each for each in browser.said() if "401" not in each] == []


@pytest.mark.long
def test_ten_thousand_edges_are_paged_searched_and_sorted(logged_in, address):
    begun = time.monotonic()
    logged_in.go(address)
    assert time.monotonic() - begun < 5
    assert "10\u202f000 edges" in logged_in.text()
    rows = logged_in.driver.find_elements(By.CSS_SELECTOR, "table.rows:first-of-type tbody tr")
    assert len(rows) == 50
    logged_in.follow(Keys.ENTER, at=logged_in.driver.find_element(By.LINK_TEXT, "Next"))
    assert "from=50" in logged_in.driver.current_url
    box = logged_in.driver.find_element(By.ID, "q")
    logged_in.follow("ridge-0777", Keys.ENTER, at=box)
    assert "1 edge of 10\u202f000" in logged_in.text()
    logged_in.go(f"{address}?only=trouble")
    logged_in.follow(Keys.ENTER, at=logged_in.tab_to("Pending"))
    assert "sort=pending" in logged_in.driver.current_url
    assert logged_in.said() == []


def test_a_conflict_is_resolved_without_a_mouse(logged_in, address, app):
    node = site_of(app).node
    logged_in.go(f"{address}owners")
    logged_in.press(Keys.TAB)
    assert logged_in.focused().text == "To the content"
    logged_in.press(Keys.ENTER)
    assert logged_in.focused().get_attribute("id") == "main"
    logged_in.follow(Keys.ENTER, at=logged_in.tab_to("Give to"))
    assert DEVICE in logged_in.text()
    logged_in.follow(Keys.ENTER, at=logged_in.tab_to("Transfer the device"))
    assert "1 device transferred" in logged_in.text()
    with node.engine.reading() as state:
        assert state.owners[DEVICE].sender == CLAIMANT
    logged_in.go(f"{address}owners")
    assert "No file is held for a device of another edge" in logged_in.text()
    assert logged_in.said() == []


@pytest.mark.few(1, always="light")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_page_fits_every_width_and_nothing_is_blocked(logged_in, address, dark):
    grounds = set()
    for page in PAGES[:4] if dark else PAGES:
        logged_in.go(f"{address}{page}")
        assert "500" not in logged_in.driver.title
        for width in WIDTHS:
            logged_in.wide(width, dark=dark)
            inner, most = logged_in.driver.execute_script(
                "return [innerWidth, document.documentElement.scrollWidth]"
            )
            assert inner == width
            assert most <= width, f"{page or 'fleet'} at {width}: {most} wide"
        body = logged_in.driver.find_element(By.TAG_NAME, "body")
        grounds.add(body.value_of_css_property("background-color"))
    assert grounds == {"rgba(18, 23, 29, 1)" if dark else "rgba(251, 252, 253, 1)"}
    assert logged_in.said() == []


def test_what_somebody_is_called_runs_nowhere(logged_in, address):
    logged_in.go(f"{address}?q=script")
    assert HOSTILE[:20] in logged_in.text()
    link = logged_in.driver.find_element(By.PARTIAL_LINK_TEXT, "<script>")
    logged_in.follow(Keys.ENTER, at=link)
    assert HOSTILE[:20] in logged_in.driver.find_element(By.TAG_NAME, "h1").text
    assert logged_in.driver.find_elements(By.TAG_NAME, "script") == []
    assert logged_in.said() == []


PICTURES = {
    "page-fleet": ("?sort=files&down=1", 1300, 860, False),
    "page-fleet-dark": ("?sort=trouble&down=1", 1300, 600, True),
    "page-fleet-small": ("?sort=trouble&down=1", 400, 860, False),
    "page-edge": (f"edge/{HOLDER}", 1300, 860, False),
    "page-files": ("files?path=root.north", 1300, 700, False),
    "page-group": ("groups/root.north", 1300, 800, False),
    "page-confirm": (f"do/adopt?sender={HOLDER}&by={CLAIMANT}", 1000, 420, False),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_of_the_manual(logged_in, address, name, request):
    if not request.config.getoption("screenshots"):
        assert Path(IMAGES, f"{name}.png").exists(), "made by --screenshots"
        return
    path, width, height, dark = PICTURES[name]
    logged_in.wide(width, dark=dark, height=height)
    logged_in.go(f"{address}{path}")
    IMAGES.mkdir(exist_ok=True)
    logged_in.picture(name)

"""What tests in a real browser share: a JupyterLab of their own, a page of Debian's chromium, screenshots."""

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from playwright.sync_api import expect, sync_playwright

CHROMIUM = shutil.which("chromium")
MARKS = [pytest.mark.slow, pytest.mark.xdist_group("browser"), pytest.mark.skipif(not CHROMIUM, reason="needs Debian's chromium")]
SCREENSHOTS = os.environ.get("SCREENSHOTS", "")  # a folder, to look at what the test saw
TIMEOUT = 60_000  # milliseconds, to wait for anything
expect.set_options(timeout=TIMEOUT)


@contextlib.contextmanager
def jupyter_lab(folder, root):
    """A JupyterLab that runs in `folder`, shows the files of `root` (both Path), and has its own settings; yields its address of a path."""
    (folder / "config" / "labconfig").mkdir(parents=True)
    no_news = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    (folder / "config" / "labconfig" / "page_config.json").write_text(json.dumps(no_news))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(8)
    command = [
        sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}",
        f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={root}",
    ]  # fmt: skip
    environment = {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "HOME": str(folder),
    }
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        for _ in range(120):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token={token}", timeout=2)
                break
            except OSError:
                assert server.poll() is None, (folder / "log").read_text()
                time.sleep(0.5)
        yield lambda path: f"http://127.0.0.1:{port}/{path}?token={token}"
    finally:
        server.terminate()
        server.wait(20)


@contextlib.contextmanager
def new_page():
    """A page of a headless browser that reaches this machine alone."""
    quiet = [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-quic",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    ]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=quiet)
        page = browser.new_context(viewport={"width": 1280, "height": 1000}).new_page()
        page.set_default_timeout(TIMEOUT)
        yield page
        browser.close()


def shoot(page, name):
    """Keep a screenshot where the environment asks for them."""
    if SCREENSHOTS:
        page.screenshot(path=os.path.join(SCREENSHOTS, f"{name}.png"))

"""The documentation as a site: nothing is fetched from elsewhere, and no public name is missing."""

import re
from pathlib import Path
from typing import Any

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

import turnledger.checkpoint
import turnledger.store
from tests.pages import DOCS, PAGES, ROOT, name_of, without_blocks
from turnledger.checkpoint import Turn, Turns

_FOR_OUR_OWN_USE = {"claim", "compare_tools", "lease_renewed", "lease_lost", "note_authorization", "submit_again"}
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_OUTSIDE = re.compile(r"https://[a-z0-9-]+(\.[a-z0-9-]+)+(/[\w./%-]*)?(#[\w-]+)?")
_RESOURCE = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*?\b(?:src|href)=["']?(?P<url>(?:https?:)?//[^"'\s>]+)""")
_NOT_ON_THE_SITE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built with every warning an error: links, anchors and pages that no menu has among them (mkdocs.yml)."""
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder)))
    return folder


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    fetched = {
        found["url"] for page in site.rglob("*.html") for found in _RESOURCE.finditer(page.read_text(encoding="utf-8"))
    }
    assert fetched == set()


@pytest.mark.parametrize("package", [turnledger.checkpoint, turnledger.store], ids=lambda package: package.__name__)
def test_the_reference_has_every_public_name(site: Path, package: Any) -> None:
    text = (site / "reference" / "python.html").read_text(encoding="utf-8")
    constants = {name for name in package.__all__ if isinstance(getattr(package, name), str)}
    names = set(re.findall(rf'id="{package.__name__}\.(?:\w+\.)*(\w+)"', text))
    assert set(package.__all__) - constants - names == set()


@pytest.mark.parametrize("kind", [Turns, Turn])
def test_the_reference_has_every_public_member(site: Path, kind: type) -> None:
    text = (site / "reference" / "python.html").read_text(encoding="utf-8")
    listed = set(re.findall(rf'id="turnledger\.checkpoint\.{kind.__name__}\.(\w+)"', text))
    assert listed == {name for name in vars(kind) if not name.startswith("_")} - _FOR_OUR_OWN_USE


@pytest.mark.parametrize("package", [turnledger.checkpoint, turnledger.store], ids=lambda package: package.__name__)
def test_every_public_name_has_a_docstring_of_its_own(package: Any) -> None:
    public = {name: getattr(package, name) for name in package.__all__ if not isinstance(getattr(package, name), str)}
    members = {
        f"{kind.__name__}.{name}": member
        for kind in public.values()
        if isinstance(kind, type)
        for name, member in vars(kind).items()
        if not name.startswith("_") and (callable(member) or isinstance(member, (property, classmethod)))
    }
    bare = [name for name, value in {**public, **members}.items() if not value.__doc__]
    generated = [name for name, value in public.items() if str(value.__doc__).startswith(f"{name}(")]  # by a dataclass
    assert bare + generated == []


@pytest.mark.parametrize("page", _NOT_ON_THE_SITE, ids=name_of)
def test_links_of_pages_beside_the_site_lead_somewhere(page: Path) -> None:
    """And to a heading that is there, where they name one."""
    for found in _LINK.finditer(without_blocks(page)):
        target, _, anchor = found["target"].partition("#")
        if not target.startswith("http"):
            file = page.parent / target if target else page
            assert file.exists(), target
            assert not anchor or anchor in _anchors(file), found["target"]


def _anchors(page: Path) -> set[str]:
    """As GitHub and mkdocs make them of headings."""
    headings = re.findall(r"^#+ (.+)$", without_blocks(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_links_to_elsewhere_are_well_formed() -> None:
    """No network is asked whether they are there."""
    for page in [*PAGES, *_NOT_ON_THE_SITE]:
        for found in _LINK.finditer(without_blocks(page)):
            if "://" in found["target"]:
                assert _OUTSIDE.fullmatch(found["target"]), f"{name_of(page)}: {found['target']}"


def test_no_page_of_the_site_leads_out_of_its_folder() -> None:
    """On the site there is nothing beside the pages; on GitHub the same link would work and hide that."""
    for page in DOCS.rglob("*.md"):
        for found in _LINK.finditer(without_blocks(page)):
            if "://" not in found["target"] and not found["target"].startswith("#"):
                assert (page.parent / found["target"].partition("#")[0]).resolve().is_relative_to(DOCS), found["target"]

"""What every Redis must do with our scripts: run over fakeredis by the unit tests and over a real server by the
integration tests. The importing module gives the fixture ``redis``; it decodes texts.
"""

from tests.records_contract.committing import *  # noqa: F403  # the tests are run where they are imported
from tests.records_contract.completing import *  # noqa: F403  # the tests are run where they are imported
from tests.records_contract.holding import *  # noqa: F403  # the tests are run where they are imported
from tests.records_contract.keys_and_commands import *  # noqa: F403  # the tests are run where they are imported
from tests.records_contract.playing import *  # noqa: F403  # and what plays them
from tests.records_contract.rewriting import *  # noqa: F403  # the tests are run where they are imported
from tests.records_contract.setting_aside import *  # noqa: F403  # the tests are run where they are imported

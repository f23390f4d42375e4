"""A node that follows a receiver may show a certificate in the place of a token."""

from contextlib import closing

import msgspec
import pytest

from common.errors import ConfigError, UnauthorizedError
from receiver.config import AuthConfig, FollowConfig
from receiver.follower.source_opening import open_source
from receiver.operator.edges.tokens import make_token
from receiver.web.app import close, create_app, site_of
from receiver.web.server import ServerTls, TlsFiles
from tests.support.authority import Authority
from tests.support.node_world import World
from tests.support.web import make_certificate, running


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_a_receiver_is_followed_by_a_certificate_that_is_bound_there(world, tmp_path):
    plant = Authority(tmp_path / "plant")
    own = make_certificate(tmp_path, "127.0.0.1")
    cert, key = plant.issue("node", "DNS:node2.centre.example")
    app = create_app(msgspec.structs.replace(world.config, auth=AuthConfig(require="always")))
    try:
        with running(app, gate=site_of(app).gate, tls=ServerTls(TlsFiles(*own, plant.ca))) as at:
            url = f"https://127.0.0.1:{at.addresses[0][1]}"
            follow = FollowConfig(url=url, ca_cert=own[0], client_cert=cert, client_key=key)
            config = msgspec.structs.replace(world.config, follow=follow)
            with closing(open_source(config)) as source:
                with pytest.raises(UnauthorizedError, match="no name of the certificate"):
                    source.look()
                make_token(site_of(app).node.engine, "operator", certificate="node2.centre.example")
                assert source.look().engine == site_of(app).node.engine.uuid
    finally:
        close(app)


def test_without_token_and_certificate_nobody_is_followed(world):
    follow = FollowConfig(url="https://centre.example")
    with pytest.raises(ConfigError, match=r"follow\.client_cert"):
        open_source(msgspec.structs.replace(world.config, follow=follow))
    (half,) = FollowConfig(client_key=None, client_cert=world.config.schema_dir).check()
    assert half.key == "client_key"

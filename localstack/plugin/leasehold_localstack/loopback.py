"""LocalStack's gateway, on the address it is given.

LocalStack 4.13.1 reads the host in GATEWAY_LISTEN and then listens on every interface, whatever it
says. An engine that checks no signature must not be reached from another machine.
"""

from rolo.gateway import Gateway
from rolo.serving.twisted import TwistedGateway
from twisted.internet import endpoints, reactor

from localstack.config import HostAndPort
from localstack.runtime.server.core import RuntimeServer, RuntimeServerPlugin
from localstack.runtime.server.twisted import TwistedRuntimeServer


class LoopbackServer(TwistedRuntimeServer):
    def register(
        self,
        gateway: Gateway,
        listen: list[HostAndPort],
        ssl_creds: tuple[str, str] | None = None,
    ) -> None:
        # Plain HTTP: the certificate that would be offered is one that nobody trusts.
        site = TwistedGateway(gateway)
        for address in listen:
            endpoint = endpoints.TCP4ServerEndpoint(reactor, address.port, interface=address.host)
            endpoint.listen(site)


class LoopbackServerPlugin(RuntimeServerPlugin):
    name = "loopback"

    def load(self, *args: object, **kwargs: object) -> RuntimeServer:
        return LoopbackServer()

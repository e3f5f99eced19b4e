"""What is used of Flower: how one message goes in, and one comes out. No code travels.

The only module that imports it. A link (Flower's SuperLink) keeps messages until they are fetched;
sites and who asks dial it. ``flower-supernode`` and ``flwr run`` would fetch and execute what
somebody sent; nothing here asks for such a thing. The names below are no public interface of
Flower, so its version is pinned, and ``tests/federated/test_flower_contract.py`` says which of them
changed.
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpstats.errors import DataError

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # a site tells nobody that it is there
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

try:
    import httpx
    from flwr.app import ConfigRecord, Message, Metadata, RecordDict
    from flwr.app.message import make_message, remove_content_from_message
    from flwr.common.constant import SUPERLINK_NODE_ID
    from flwr.common.serde import message_from_proto, message_to_proto
    from flwr.proto.control_pb2 import StartRunRequest
    from flwr.proto.fab_pb2 import Fab
    from flwr.proto.fleet_pb2 import (
        ActivateNodeRequest,
        DeactivateNodeRequest,
        PullMessagesRequest,
        PushMessagesRequest,
        RegisterNodeFleetRequest,
    )
    from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
    from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
    from flwr.proto.node_pb2 import Node
    from flwr.proto.runtime_pb2 import (
        AcquireTaskRequest,
        GetNodesRequest,
        PullAppMessagesRequest,
        PullTaskInputRequest,
        PushAppMessagesRequest,
        PushTaskOutputRequest,
        SendTaskHeartbeatRequest,
    )
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.inflatable.inflatable_object import (
        get_all_nested_objects,
        get_object_tree,
        iterate_object_tree,
        no_object_id_recompute,
    )
    from flwr.supercore.inflatable.inflatable_protobuf_utils import (
        make_pull_object_fn_protobuf,
        make_push_object_fn_protobuf,
    )
    from flwr.supercore.inflatable.inflatable_utils import (
        inflate_object_from_contents,
        pull_objects,
        push_objects,
    )
    from flwr.supercore.interceptors import (
        RuntimeTokenHttpInterceptor,
        RuntimeVersionHttpInterceptor,
        SuperExecAuthHttpInterceptor,
    )
    from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
    from flwr.supercore.runtime import RuntimeHttpClient
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
except ImportError as error:
    raise DataError(
        "A network between sites needs Flower 1.41: python -m pip install 'dpstats[flower]' "
        f"({type(error).__name__}: {error})."
    ) from None

__all__ = [
    "Address",
    "Asking",
    "BarredError",
    "LostError",
    "Note",
    "Serving",
    "asking",
    "serving",
]

_DIALLING = "dialling"
_BARRED = (401, 403, 412)  # HTTP; later on they are said of a run that has ended, too
_KIND = "query"  # a type of message that Flower lets pass
_TASK = "flwr-serverapp"
_ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
_RECORD, _FIELD = "dpstats", "message"
_BEAT = 8.0  # seconds between signs of life
_WAIT = 30.0  # seconds without one after which a link takes a site to be gone
_OBJECTS = 8  # of a message: itself, its record, and what is in it
_PULLED = 20.0  # seconds that the parts of one message may take


class LostError(Exception):
    """The link does not answer, or answers nonsense; it may come back."""


class BarredError(Exception):
    """The link does not let this party in."""


@dataclass(frozen=True)
class Address:
    """Where a link is, and how it is known to be the one.

    Attributes
    ----------
    link : str
        ``host:port``.
    root_certificates : path, optional
        The certificate that signed the link's own; None for plain HTTP.
    """

    link: str
    root_certificates: Path | None = None

    def client(self, kind: Any, interceptors: Sequence[Any]) -> Any:
        """One of Flower's clients; it retries nothing by itself."""
        roots = self.root_certificates
        try:
            return kind.from_server_address(
                self.link, roots is None, None if roots is None else str(roots), interceptors
            )
        except (OSError, ValueError) as error:
            raise DataError(f"{roots}: no root certificates ({type(error).__name__}).") from None


@contextmanager
def _dialled(what: str) -> Iterator[None]:
    """Errors of the network as ours; what a stranger wrote is not among their words."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        code = error.response.status_code
        if what == _DIALLING and code in _BARRED:
            raise BarredError(f"{what}: not let in (HTTP {code})") from None
        raise LostError(f"{what}: HTTP {code}") from None
    except httpx.HTTPError as error:
        raise LostError(f"{what}: {type(error).__name__}") from None
    except (DataError, LostError, BarredError):
        raise
    except Exception as error:
        raise LostError(f"{what}: {type(error).__name__}") from None


@dataclass(frozen=True)
class Note:
    """One message: bytes and where they belong; no bytes where there were none to read."""

    body: bytes | None
    message: Any

    @property
    def waited_for(self) -> bool:
        """Whether the link still takes a reply to it."""
        metadata = self.message.metadata
        return bool(time.time() < metadata.created_at + metadata.ttl)


class _Party:
    """One end of a link: messages are put there and fetched from there in parts."""

    def __init__(self, client: Any, node: Any) -> None:
        self._client, self._node = client, node
        self._ended = threading.Event()

    def _beating(self, beat: Callable[[], object]) -> None:
        """Give signs of life until closed, while the other thread works."""

        def run() -> None:
            while not self._ended.wait(_BEAT):
                with suppress(Exception):  # the next one may come through
                    beat()

        threading.Thread(target=run, daemon=True).start()

    def _put(self, message: Any, ask: Callable[[Any, Any], Any]) -> str:
        """Announce a message, then hand over the parts that the link lacks."""
        message.metadata.__dict__["_message_id"] = message.object_id
        with no_object_id_recompute():
            head, tree = remove_content_from_message(message), get_object_tree(message)
            told = ask(message_to_proto(head), tree)
            run = message.metadata.run_id
            push = make_push_object_fn_protobuf(
                self._client.PushObject, self._node, run, told.session_id
            )
            wanted = set(told.objects_to_push)
            push_objects(get_all_nested_objects(message), push, object_ids_to_push=wanted)
        return str(message.metadata.message_id)

    def _fetched(self, proto: Any, tree: Any) -> Note:
        """The bytes of a message of which the link told; nobody's word but its length is taken."""
        head = message_from_proto(proto)
        head.metadata.__dict__["_message_id"] = tree.object_id
        if head.has_error():
            return Note(None, head)
        parts = [part.object_id for part in iterate_object_tree(tree)]
        run = head.metadata.run_id
        if len(parts) > _OBJECTS:
            return Note(b"", head)
        pull = make_pull_object_fn_protobuf(self._client.PullObject, self._node, run)
        try:
            contents = pull_objects(parts, pull, max_time=_PULLED)
            self._client.ConfirmMessageReceived(
                ConfirmMessageReceivedRequest(
                    node=self._node, run_id=run, message_object_id=tree.object_id
                )
            )
            message: Any = inflate_object_from_contents(tree.object_id, contents)
            message.metadata.__dict__["_message_id"] = tree.object_id
            body = message.content[_RECORD][_FIELD]
        except httpx.HTTPError:
            raise
        except Exception:  # it is not of our making
            return Note(b"", head)
        return Note(body if isinstance(body, bytes) else b"", message)


def _content(body: bytes) -> Any:
    return RecordDict({_RECORD: ConfigRecord({_FIELD: body})})


class Serving(_Party):
    """A site at a link; `serving` opens it."""

    def fetch(self) -> Note | None:
        """The next message that waits for this site.

        Raises
        ------
        LostError, BarredError
        """
        with _dialled("fetching"):
            found = self._client.PullMessages(PullMessagesRequest(node=self._node))
            if not found.messages_list:
                return None
            return self._fetched(found.messages_list[0], found.message_object_trees[0])

    def reply(self, note: Note, body: bytes) -> None:
        """Answer a message; how long it took is nobody's business.

        Raises
        ------
        LostError, BarredError
        """
        with _dialled("replying"):
            self._put(
                Message(_content(body), reply_to=note.message),
                lambda head, tree: self._client.PushMessages(
                    PushMessagesRequest(
                        node=self._node,
                        messages_list=[head],
                        message_object_trees=[tree],
                        clientapp_runtime_list=[0.0],
                    )
                ),
            )


@contextmanager
def serving(address: Address, key: Any = None) -> Iterator[Serving]:
    """Dial a link as a site.

    Parameters
    ----------
    address : Address
        Of the link.
    key : private key, optional
        The one registered there. Without it the site makes a key and registers itself, which a
        link lets in that does not authenticate.

    Raises
    ------
    LostError, BarredError
    """
    private, public = (key, key.public_key()) if key is not None else generate_key_pairs()
    signs = NodeAuthHttpInterceptor(private, public)
    versions = RuntimeVersionHttpInterceptor(component_name="SuperNode")
    name = public_key_to_bytes(public)
    with ExitStack() as open_ones:
        with _dialled(_DIALLING):
            client = open_ones.enter_context(address.client(FleetHttpClient, [versions, signs]))
            if key is None:
                client.RegisterNode(RegisterNodeFleetRequest(public_key=name))
            asks = ActivateNodeRequest(public_key=name, heartbeat_interval=_WAIT)
            node = Node(node_id=client.ActivateNode(asks).node_id)
        site = Serving(client, node)
        alive = SendNodeHeartbeatRequest(node=node, heartbeat_interval=_WAIT)
        site._beating(lambda: client.SendNodeHeartbeat(alive))
        try:
            yield site
        finally:
            site._ended.set()
            with suppress(httpx.HTTPError):
                client.DeactivateNode(DeactivateNodeRequest(node_id=node.node_id))


class Asking(_Party):
    """Who asks, at a link; `asking` opens it."""

    def __init__(self, client: Any, node: Any, run: int) -> None:
        super().__init__(client, node)
        self._run = run

    def nodes(self) -> frozenset[int]:
        """Who is at the link now, by number.

        Raises
        ------
        LostError, BarredError
        """
        with _dialled("looking who is there"):
            return frozenset(n.node_id for n in self._client.GetNodes(GetNodesRequest()).nodes)

    def put(self, node: int, body: bytes, seconds: float) -> str:
        """Leave a message for a node, which the link drops after so many seconds.

        Raises
        ------
        LostError, BarredError
        """
        metadata = Metadata(
            run_id=self._run,
            message_id="",
            src_node_id=self._node.node_id,
            dst_node_id=node,
            reply_to_message_id="",
            group_id="",
            created_at=time.time(),
            ttl=seconds,
            message_type=_KIND,
        )
        with _dialled("asking"):
            return self._put(
                make_message(metadata=metadata, content=_content(body)),
                lambda head, tree: self._client.PushMessages(
                    PushAppMessagesRequest(messages_list=[head], message_object_trees=[tree])
                ),
            )

    def fetch(self, asked: Sequence[str]) -> list[tuple[str, Note]]:
        """Replies that have come, each with the message that it answers.

        Raises
        ------
        LostError, BarredError
        """
        with _dialled("waiting for replies"):
            found = self._client.PullMessages(PullAppMessagesRequest(message_ids=asked))
            pairs = zip(found.messages_list, found.message_object_trees, strict=True)
            notes = [self._fetched(head, tree) for head, tree in pairs]
        return [(note.message.metadata.reply_to_message_id, note) for note in notes]


@contextmanager
def asking(address: Address, secret: bytes | None, seconds: float = 20.0) -> Iterator[Asking]:
    """Dial a link as who asks: begin a run without code, and carry it out here.

    Parameters
    ----------
    address : Address
        Of the link.
    secret : bytes, optional
        What the link was started with (``--superexec-auth-secret-file``).
    seconds : float
        How long to wait for the run.

    Raises
    ------
    LostError, BarredError
    """
    versions = RuntimeVersionHttpInterceptor(component_name="flwr-serverapp")
    proves = (
        []
        if secret is None
        else [SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods={_ACQUIRE})]
    )
    app, task = _no_code(), SendTaskHeartbeatRequest()
    with ExitStack() as open_ones:
        with _dialled(_DIALLING):
            with address.client(ControlHttpClient, [versions]) as control:
                named = Fab(hash_str=hashlib.sha256(app).hexdigest(), content=app)
                control.StartRun(StartRunRequest(fab=named))
            with address.client(RuntimeHttpClient, [versions, *proves]) as runtime:
                speaks = RuntimeTokenHttpInterceptor(token=_token(runtime, seconds))
            client = open_ones.enter_context(address.client(RuntimeHttpClient, [versions, speaks]))
            given = client.PullTaskInput(PullTaskInputRequest())
        party = Asking(client, Node(node_id=SUPERLINK_NODE_ID), given.run.run_id)
        party._beating(lambda: client.SendTaskHeartbeat(task))
        try:
            yield party
        finally:
            party._ended.set()
            done = PushTaskOutputRequest(context=given.context, sub_status="completed", details="")
            with suppress(httpx.HTTPError):
                client.PushTaskOutput(done)


def _token(runtime: Any, seconds: float) -> str:
    """The right to speak for one of the runs that wait; they are all alike."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        given = runtime.AcquireTask(AcquireTaskRequest(supported_task_types=[_TASK]))
        if given.token:
            return str(given.token)
        time.sleep(0.2)
    raise DataError(
        "The link gave the question to a process of its own, which is not to happen: start it "
        "with --isolation process (docs/federated.md has the command)."
    )


def _no_code() -> bytes:
    """What a run has to name: an app, here one without a line of code."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(zipfile.ZipInfo("pyproject.toml"), _APP)
    return made.getvalue()


_APP = """[project]
name = "dpstats-question"
version = "1.0.0"

[tool.flwr.app]
publisher = "dpstats"

[tool.flwr.app.components]
serverapp = "none:none"
clientapp = "none:none"

[tool.flwr.app.config]
"""

"""What is used of Flower is no public interface of it: this says which of its names changed."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

pytest.importorskip("flwr", reason="uv run --group flower pytest -m flower")
from dpstats.federated.network import wire

pytestmark = pytest.mark.flower

SIGNATURES = {
    "get_all_nested_objects": ["obj"],
    "get_object_tree": ["obj"],
    "iterate_object_tree": ["tree"],
    "no_object_id_recompute": [],
    "inflate_object_from_contents": [
        "object_id",
        "object_contents",
        "keep_object_contents",
        "objects",
    ],
    "make_message": ["metadata", "content", "error"],
    "remove_content_from_message": ["message"],
    "message_from_proto": ["message_proto"],
    "message_to_proto": ["message"],
    "make_pull_object_fn_protobuf": ["pull_object_protobuf", "node", "run_id"],
    "make_push_object_fn_protobuf": ["push_object_protobuf", "node", "run_id", "session_id"],
    "generate_key_pairs": [],
    "public_key_to_bytes": ["public_key"],
    "NodeAuthHttpInterceptor": ["private_key", "public_key"],
    "RuntimeTokenHttpInterceptor": ["token"],
    "RuntimeVersionHttpInterceptor": ["component_name"],
    "SuperExecAuthHttpInterceptor": ["master_secret", "protected_methods"],
}
BEGIN = {  # what they begin with; more may follow
    "pull_objects": ["object_ids", "pull_object_fn", "max_concurrent_pulls", "max_time"],
    "push_objects": ["objects", "push_object_fn", "object_ids_to_push"],
    "Metadata": [
        *("run_id", "message_id", "src_node_id", "dst_node_id", "reply_to_message_id"),
        *("group_id", "created_at", "ttl", "message_type"),
    ],
}
CALLS = {
    "ControlHttpClient": ["StartRun"],
    "FleetHttpClient": [
        *("RegisterNode", "ActivateNode", "DeactivateNode", "SendNodeHeartbeat"),
        *("PullMessages", "PushMessages", "PullObject", "PushObject", "ConfirmMessageReceived"),
    ],
    "RuntimeHttpClient": [
        *("AcquireTask", "PullTaskInput", "PushTaskOutput", "SendTaskHeartbeat", "GetNodes"),
        *("PullMessages", "PushMessages", "PullObject", "PushObject", "ConfirmMessageReceived"),
    ],
}
FIELDS = {
    "StartRunRequest": ["fab"],
    "Fab": ["hash_str", "content"],
    "RegisterNodeFleetRequest": ["public_key"],
    "ActivateNodeRequest": ["public_key", "heartbeat_interval"],
    "DeactivateNodeRequest": ["node_id"],
    "SendNodeHeartbeatRequest": ["node", "heartbeat_interval"],
    "PullMessagesRequest": ["node"],
    "PushMessagesRequest": [
        *("node", "messages_list", "message_object_trees", "clientapp_runtime_list"),
    ],
    "ConfirmMessageReceivedRequest": ["node", "run_id", "message_object_id"],
    "AcquireTaskRequest": ["supported_task_types"],
    "PullAppMessagesRequest": ["message_ids"],
    "PushAppMessagesRequest": ["messages_list", "message_object_trees"],
    "PushTaskOutputRequest": ["context", "sub_status", "details"],
    "GetNodesRequest": [],
    "SendTaskHeartbeatRequest": [],
    "PullTaskInputRequest": [],
    "Node": ["node_id"],
}


def parameters(called: Any) -> list[str]:
    return [name for name in inspect.signature(called).parameters if name != "self"]


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_function_takes_what_it_took(name: str) -> None:
    assert parameters(getattr(wire, name)) == SIGNATURES[name], f"flwr changed {name}"


@pytest.mark.parametrize("name", BEGIN)
def test_a_function_takes_first_what_it_took(name: str) -> None:
    now = parameters(getattr(wire, name))
    missing = [p for p in BEGIN[name] if p not in now]
    assert not missing, f"flwr changed {name}: {missing} are gone"


@pytest.mark.parametrize(
    ("client", "call"), [(client, call) for client, calls in CALLS.items() for call in calls]
)
def test_a_client_has_the_calls_it_had(client: str, call: str) -> None:
    found = getattr(getattr(wire, client), call, None)
    assert found is not None, f"flwr: {client}.{call} is gone"
    assert parameters(found) == ["request"], f"flwr changed {client}.{call}"


@pytest.mark.parametrize("name", FIELDS)
def test_a_request_has_the_fields_it_had(name: str) -> None:
    fields = set(getattr(wire, name).DESCRIPTOR.fields_by_name)
    missing = sorted(set(FIELDS[name]) - fields)
    assert not missing, f"flwr changed {name}: {missing} are gone"


def test_a_client_is_made_as_it_was() -> None:
    for client in CALLS:
        made = getattr(wire, client).from_server_address
        needed = parameters(made)[:4]
        assert needed == ["server_address", "insecure", "root_certificates", "interceptors"], (
            f"flwr changed {client}.from_server_address"
        )


def test_bytes_come_out_of_a_message_as_they_went_in() -> None:
    content = wire._content(b"\x00\xff{}")
    message = wire.make_message(
        metadata=wire.Metadata(
            run_id=1,
            message_id="",
            src_node_id=wire.SUPERLINK_NODE_ID,
            dst_node_id=2,
            reply_to_message_id="",
            group_id="",
            created_at=1.8e9,
            ttl=9.0,
            message_type=wire._KIND,
        ),
        content=content,
    )
    parts = wire.get_all_nested_objects(message)
    tree = wire.get_object_tree(message)
    assert len(list(wire.iterate_object_tree(tree))) <= wire._OBJECTS
    written = {name: part.deflate() for name, part in parts.items()}
    read = wire.inflate_object_from_contents(tree.object_id, written)
    assert read.content[wire._RECORD][wire._FIELD] == b"\x00\xff{}"


def test_the_app_that_a_run_names_holds_no_code() -> None:
    import io
    import zipfile

    with zipfile.ZipFile(io.BytesIO(wire._no_code())) as archive:
        assert archive.namelist() == ["pyproject.toml"]
    assert wire._no_code() == wire._no_code()


def test_nothing_that_fetches_code_is_called() -> None:
    from pathlib import Path

    folder = Path(wire.__file__).parent
    text = "".join(path.read_text() for path in folder.glob("*.py"))
    for name in (
        "get_fab",
        "GetFab",
        "install_from_fab",
        "http_request_response",
        "pickle",
        "exec(",
    ):
        assert name not in text

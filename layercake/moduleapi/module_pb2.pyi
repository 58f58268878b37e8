from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Hello(_message.Message):
    __slots__ = ("version", "service", "instance", "cookie")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    COOKIE_FIELD_NUMBER: _ClassVar[int]
    version: int
    service: str
    instance: str
    cookie: str
    def __init__(self, version: _Optional[int] = ..., service: _Optional[str] = ..., instance: _Optional[str] = ..., cookie: _Optional[str] = ...) -> None: ...

class Discovery(_message.Message):
    __slots__ = ("node", "values", "why")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    node: str
    values: _containers.ScalarMap[str, str]
    why: str
    def __init__(self, node: _Optional[str] = ..., values: _Optional[_Mapping[str, str]] = ..., why: _Optional[str] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("node", "kind", "severity", "text", "data_json")
    NODE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    DATA_JSON_FIELD_NUMBER: _ClassVar[int]
    node: str
    kind: str
    severity: str
    text: str
    data_json: str
    def __init__(self, node: _Optional[str] = ..., kind: _Optional[str] = ..., severity: _Optional[str] = ..., text: _Optional[str] = ..., data_json: _Optional[str] = ...) -> None: ...

class MutationResult(_message.Message):
    __slots__ = ("id", "ok", "error", "hint", "values", "after")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    id: int
    ok: bool
    error: str
    hint: str
    values: _containers.ScalarMap[str, str]
    after: str
    def __init__(self, id: _Optional[int] = ..., ok: _Optional[bool] = ..., error: _Optional[str] = ..., hint: _Optional[str] = ..., values: _Optional[_Mapping[str, str]] = ..., after: _Optional[str] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("id", "ok", "error", "hint", "json", "kind")
    ID_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    id: int
    ok: bool
    error: str
    hint: str
    json: bytes
    kind: str
    def __init__(self, id: _Optional[int] = ..., ok: _Optional[bool] = ..., error: _Optional[str] = ..., hint: _Optional[str] = ..., json: _Optional[bytes] = ..., kind: _Optional[str] = ...) -> None: ...

class FromService(_message.Message):
    __slots__ = ("hello", "discovery", "event", "result", "answer", "health")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    DISCOVERY_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    discovery: Discovery
    event: Event
    result: MutationResult
    answer: Answer
    health: str
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., discovery: _Optional[_Union[Discovery, _Mapping]] = ..., event: _Optional[_Union[Event, _Mapping]] = ..., result: _Optional[_Union[MutationResult, _Mapping]] = ..., answer: _Optional[_Union[Answer, _Mapping]] = ..., health: _Optional[str] = ...) -> None: ...

class Settings(_message.Message):
    __slots__ = ("json", "site_json")
    JSON_FIELD_NUMBER: _ClassVar[int]
    SITE_JSON_FIELD_NUMBER: _ClassVar[int]
    json: bytes
    site_json: bytes
    def __init__(self, json: _Optional[bytes] = ..., site_json: _Optional[bytes] = ...) -> None: ...

class NodeChanged(_message.Message):
    __slots__ = ("node", "json")
    NODE_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    node: str
    json: bytes
    def __init__(self, node: _Optional[str] = ..., json: _Optional[bytes] = ...) -> None: ...

class NodeRemoved(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: str
    def __init__(self, node: _Optional[str] = ...) -> None: ...

class NodeState(_message.Message):
    __slots__ = ("node", "values")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    node: str
    values: _containers.ScalarMap[str, str]
    def __init__(self, node: _Optional[str] = ..., values: _Optional[_Mapping[str, str]] = ...) -> None: ...

class NetworkChanged(_message.Message):
    __slots__ = ("name", "json")
    NAME_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    name: str
    json: bytes
    def __init__(self, name: _Optional[str] = ..., json: _Optional[bytes] = ...) -> None: ...

class NetworkRemoved(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Mutate(_message.Message):
    __slots__ = ("id", "node", "mutation", "attempt", "timeout_s", "params_json")
    ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    PARAMS_JSON_FIELD_NUMBER: _ClassVar[int]
    id: int
    node: str
    mutation: str
    attempt: int
    timeout_s: float
    params_json: bytes
    def __init__(self, id: _Optional[int] = ..., node: _Optional[str] = ..., mutation: _Optional[str] = ..., attempt: _Optional[int] = ..., timeout_s: _Optional[float] = ..., params_json: _Optional[bytes] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    def __init__(self, id: _Optional[int] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("id", "method", "json")
    ID_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    id: int
    method: str
    json: bytes
    def __init__(self, id: _Optional[int] = ..., method: _Optional[str] = ..., json: _Optional[bytes] = ...) -> None: ...

class Several(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[FromHead]
    def __init__(self, messages: _Optional[_Iterable[_Union[FromHead, _Mapping]]] = ...) -> None: ...

class FromHead(_message.Message):
    __slots__ = ("settings", "node_changed", "node_removed", "node_state", "mutate", "cancel", "call", "ready", "stop", "network_changed", "network_removed", "log_level", "several")
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    NODE_CHANGED_FIELD_NUMBER: _ClassVar[int]
    NODE_REMOVED_FIELD_NUMBER: _ClassVar[int]
    NODE_STATE_FIELD_NUMBER: _ClassVar[int]
    MUTATE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    NETWORK_CHANGED_FIELD_NUMBER: _ClassVar[int]
    NETWORK_REMOVED_FIELD_NUMBER: _ClassVar[int]
    LOG_LEVEL_FIELD_NUMBER: _ClassVar[int]
    SEVERAL_FIELD_NUMBER: _ClassVar[int]
    settings: Settings
    node_changed: NodeChanged
    node_removed: NodeRemoved
    node_state: NodeState
    mutate: Mutate
    cancel: Cancel
    call: Call
    ready: bool
    stop: bool
    network_changed: NetworkChanged
    network_removed: NetworkRemoved
    log_level: str
    several: Several
    def __init__(self, settings: _Optional[_Union[Settings, _Mapping]] = ..., node_changed: _Optional[_Union[NodeChanged, _Mapping]] = ..., node_removed: _Optional[_Union[NodeRemoved, _Mapping]] = ..., node_state: _Optional[_Union[NodeState, _Mapping]] = ..., mutate: _Optional[_Union[Mutate, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., call: _Optional[_Union[Call, _Mapping]] = ..., ready: _Optional[bool] = ..., stop: _Optional[bool] = ..., network_changed: _Optional[_Union[NetworkChanged, _Mapping]] = ..., network_removed: _Optional[_Union[NetworkRemoved, _Mapping]] = ..., log_level: _Optional[str] = ..., several: _Optional[_Union[Several, _Mapping]] = ...) -> None: ...

import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    ROLE_SYSTEM: _ClassVar[Role]
    ROLE_DEVELOPER: _ClassVar[Role]
    ROLE_USER: _ClassVar[Role]
    ROLE_ASSISTANT: _ClassVar[Role]
    ROLE_TOOL: _ClassVar[Role]

class Retention(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RETENTION_UNSPECIFIED: _ClassVar[Retention]
    RETENTION_FULL: _ClassVar[Retention]
    RETENTION_HASH: _ClassVar[Retention]
    RETENTION_NONE: _ClassVar[Retention]

class Severity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEVERITY_UNSPECIFIED: _ClassVar[Severity]
    SEVERITY_INFO: _ClassVar[Severity]
    SEVERITY_WARN: _ClassVar[Severity]
    SEVERITY_ERROR: _ClassVar[Severity]

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    VERDICT_NONE: _ClassVar[Verdict]
    VERDICT_OK: _ClassVar[Verdict]
    VERDICT_FAILED: _ClassVar[Verdict]
    VERDICT_UNKNOWN: _ClassVar[Verdict]
ROLE_UNSPECIFIED: Role
ROLE_SYSTEM: Role
ROLE_DEVELOPER: Role
ROLE_USER: Role
ROLE_ASSISTANT: Role
ROLE_TOOL: Role
RETENTION_UNSPECIFIED: Retention
RETENTION_FULL: Retention
RETENTION_HASH: Retention
RETENTION_NONE: Retention
SEVERITY_UNSPECIFIED: Severity
SEVERITY_INFO: Severity
SEVERITY_WARN: Severity
SEVERITY_ERROR: Severity
VERDICT_UNSPECIFIED: Verdict
VERDICT_NONE: Verdict
VERDICT_OK: Verdict
VERDICT_FAILED: Verdict
VERDICT_UNKNOWN: Verdict

class GenerateRequest(_message.Message):
    __slots__ = ("model", "chat", "text", "token_ids", "tools", "tool_choice", "parallel_tool_calls", "constraint", "sampling", "request_id", "policy", "policy_overrides", "retention", "engines", "engine_fields", "metadata", "return_token_ids")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CHAT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CHOICE_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    POLICY_OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELDS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    RETURN_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    model: str
    chat: ChatPrompt
    text: str
    token_ids: TokenIds
    tools: _containers.RepeatedCompositeFieldContainer[Tool]
    tool_choice: ToolChoice
    parallel_tool_calls: bool
    constraint: Constraint
    sampling: Sampling
    request_id: str
    policy: str
    policy_overrides: PolicyOverrides
    retention: Retention
    engines: _containers.RepeatedScalarFieldContainer[str]
    engine_fields: _struct_pb2.Struct
    metadata: _containers.ScalarMap[str, str]
    return_token_ids: bool
    def __init__(self, model: _Optional[str] = ..., chat: _Optional[_Union[ChatPrompt, _Mapping]] = ..., text: _Optional[str] = ..., token_ids: _Optional[_Union[TokenIds, _Mapping]] = ..., tools: _Optional[_Iterable[_Union[Tool, _Mapping]]] = ..., tool_choice: _Optional[_Union[ToolChoice, _Mapping]] = ..., parallel_tool_calls: _Optional[bool] = ..., constraint: _Optional[_Union[Constraint, _Mapping]] = ..., sampling: _Optional[_Union[Sampling, _Mapping]] = ..., request_id: _Optional[str] = ..., policy: _Optional[str] = ..., policy_overrides: _Optional[_Union[PolicyOverrides, _Mapping]] = ..., retention: _Optional[_Union[Retention, str]] = ..., engines: _Optional[_Iterable[str]] = ..., engine_fields: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., return_token_ids: _Optional[bool] = ...) -> None: ...

class ChatPrompt(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ChatMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[ChatMessage, _Mapping]]] = ...) -> None: ...

class TokenIds(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class ChatMessage(_message.Message):
    __slots__ = ("role", "text", "parts", "name", "reasoning", "tool_calls", "tool_call_id")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    role: Role
    text: str
    parts: ContentParts
    name: str
    reasoning: str
    tool_calls: _containers.RepeatedCompositeFieldContainer[ToolCall]
    tool_call_id: str
    def __init__(self, role: _Optional[_Union[Role, str]] = ..., text: _Optional[str] = ..., parts: _Optional[_Union[ContentParts, _Mapping]] = ..., name: _Optional[str] = ..., reasoning: _Optional[str] = ..., tool_calls: _Optional[_Iterable[_Union[ToolCall, _Mapping]]] = ..., tool_call_id: _Optional[str] = ...) -> None: ...

class ContentParts(_message.Message):
    __slots__ = ("parts",)
    PARTS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[ContentPart]
    def __init__(self, parts: _Optional[_Iterable[_Union[ContentPart, _Mapping]]] = ...) -> None: ...

class ContentPart(_message.Message):
    __slots__ = ("text", "raw")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    text: str
    raw: _struct_pb2.Struct
    def __init__(self, text: _Optional[str] = ..., raw: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ToolCall(_message.Message):
    __slots__ = ("id", "name", "arguments")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    arguments: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., arguments: _Optional[str] = ...) -> None: ...

class Tool(_message.Message):
    __slots__ = ("name", "description", "parameters_json", "strict")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_JSON_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    parameters_json: str
    strict: bool
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., parameters_json: _Optional[str] = ..., strict: _Optional[bool] = ...) -> None: ...

class ToolChoice(_message.Message):
    __slots__ = ("mode", "name", "allowed")
    class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MODE_UNSPECIFIED: _ClassVar[ToolChoice.Mode]
        MODE_NONE: _ClassVar[ToolChoice.Mode]
        MODE_AUTO: _ClassVar[ToolChoice.Mode]
        MODE_REQUIRED: _ClassVar[ToolChoice.Mode]
    MODE_UNSPECIFIED: ToolChoice.Mode
    MODE_NONE: ToolChoice.Mode
    MODE_AUTO: ToolChoice.Mode
    MODE_REQUIRED: ToolChoice.Mode
    MODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    mode: ToolChoice.Mode
    name: str
    allowed: AllowedTools
    def __init__(self, mode: _Optional[_Union[ToolChoice.Mode, str]] = ..., name: _Optional[str] = ..., allowed: _Optional[_Union[AllowedTools, _Mapping]] = ...) -> None: ...

class AllowedTools(_message.Message):
    __slots__ = ("names", "required")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    required: bool
    def __init__(self, names: _Optional[_Iterable[str]] = ..., required: _Optional[bool] = ...) -> None: ...

class Constraint(_message.Message):
    __slots__ = ("json_schema", "json_object", "regex", "choice", "grammar", "structural_tag", "name", "strict")
    JSON_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    JSON_OBJECT_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_FIELD_NUMBER: _ClassVar[int]
    STRUCTURAL_TAG_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    json_schema: str
    json_object: JsonObject
    regex: str
    choice: Choices
    grammar: Grammar
    structural_tag: str
    name: str
    strict: bool
    def __init__(self, json_schema: _Optional[str] = ..., json_object: _Optional[_Union[JsonObject, _Mapping]] = ..., regex: _Optional[str] = ..., choice: _Optional[_Union[Choices, _Mapping]] = ..., grammar: _Optional[_Union[Grammar, _Mapping]] = ..., structural_tag: _Optional[str] = ..., name: _Optional[str] = ..., strict: _Optional[bool] = ...) -> None: ...

class JsonObject(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Choices(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class Grammar(_message.Message):
    __slots__ = ("syntax", "text")
    class Syntax(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SYNTAX_UNSPECIFIED: _ClassVar[Grammar.Syntax]
        SYNTAX_EBNF: _ClassVar[Grammar.Syntax]
        SYNTAX_GBNF: _ClassVar[Grammar.Syntax]
        SYNTAX_LARK: _ClassVar[Grammar.Syntax]
    SYNTAX_UNSPECIFIED: Grammar.Syntax
    SYNTAX_EBNF: Grammar.Syntax
    SYNTAX_GBNF: Grammar.Syntax
    SYNTAX_LARK: Grammar.Syntax
    SYNTAX_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    syntax: Grammar.Syntax
    text: str
    def __init__(self, syntax: _Optional[_Union[Grammar.Syntax, str]] = ..., text: _Optional[str] = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ("max_tokens", "temperature", "top_p", "seed", "frequency_penalty", "presence_penalty", "stop", "n", "logprobs", "top_logprobs")
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    frequency_penalty: float
    presence_penalty: float
    stop: _containers.RepeatedScalarFieldContainer[str]
    n: int
    logprobs: bool
    top_logprobs: int
    def __init__(self, max_tokens: _Optional[int] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., seed: _Optional[int] = ..., frequency_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., stop: _Optional[_Iterable[str]] = ..., n: _Optional[int] = ..., logprobs: _Optional[bool] = ..., top_logprobs: _Optional[int] = ...) -> None: ...

class PolicyOverrides(_message.Message):
    __slots__ = ("max_attempts", "no_resume", "release_on_complete", "no_repairs")
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    NO_RESUME_FIELD_NUMBER: _ClassVar[int]
    RELEASE_ON_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    NO_REPAIRS_FIELD_NUMBER: _ClassVar[int]
    max_attempts: int
    no_resume: bool
    release_on_complete: bool
    no_repairs: bool
    def __init__(self, max_attempts: _Optional[int] = ..., no_resume: _Optional[bool] = ..., release_on_complete: _Optional[bool] = ..., no_repairs: _Optional[bool] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("started", "delta", "recovery", "finding", "repair", "finished", "failed")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_FIELD_NUMBER: _ClassVar[int]
    FINDING_FIELD_NUMBER: _ClassVar[int]
    REPAIR_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    started: Started
    delta: Delta
    recovery: Recovery
    finding: Finding
    repair: Repair
    finished: Finished
    failed: Failed
    def __init__(self, started: _Optional[_Union[Started, _Mapping]] = ..., delta: _Optional[_Union[Delta, _Mapping]] = ..., recovery: _Optional[_Union[Recovery, _Mapping]] = ..., finding: _Optional[_Union[Finding, _Mapping]] = ..., repair: _Optional[_Union[Repair, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ...) -> None: ...

class Started(_message.Message):
    __slots__ = ("request_id", "trace_id", "model", "engine")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    trace_id: str
    model: str
    engine: str
    def __init__(self, request_id: _Optional[str] = ..., trace_id: _Optional[str] = ..., model: _Optional[str] = ..., engine: _Optional[str] = ...) -> None: ...

class Delta(_message.Message):
    __slots__ = ("choice", "content", "reasoning", "refusal", "tool_call", "token_ids", "logprobs")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    choice: int
    content: str
    reasoning: str
    refusal: str
    tool_call: ToolCallDelta
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedCompositeFieldContainer[TokenLogprob]
    def __init__(self, choice: _Optional[int] = ..., content: _Optional[str] = ..., reasoning: _Optional[str] = ..., refusal: _Optional[str] = ..., tool_call: _Optional[_Union[ToolCallDelta, _Mapping]] = ..., token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[_Union[TokenLogprob, _Mapping]]] = ...) -> None: ...

class ToolCallDelta(_message.Message):
    __slots__ = ("index", "id", "name", "arguments")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    index: int
    id: str
    name: str
    arguments: str
    def __init__(self, index: _Optional[int] = ..., id: _Optional[str] = ..., name: _Optional[str] = ..., arguments: _Optional[str] = ...) -> None: ...

class TokenLogprob(_message.Message):
    __slots__ = ("token", "logprob", "token_bytes", "top")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    TOKEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    token: str
    logprob: float
    token_bytes: bytes
    top: _containers.RepeatedCompositeFieldContainer[TokenLogprob]
    def __init__(self, token: _Optional[str] = ..., logprob: _Optional[float] = ..., token_bytes: _Optional[bytes] = ..., top: _Optional[_Iterable[_Union[TokenLogprob, _Mapping]]] = ...) -> None: ...

class Recovery(_message.Message):
    __slots__ = ("choice", "attempt", "action", "from_engine", "to_engine", "reason", "channel", "offset")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    FROM_ENGINE_FIELD_NUMBER: _ClassVar[int]
    TO_ENGINE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    choice: int
    attempt: int
    action: str
    from_engine: str
    to_engine: str
    reason: str
    channel: str
    offset: int
    def __init__(self, choice: _Optional[int] = ..., attempt: _Optional[int] = ..., action: _Optional[str] = ..., from_engine: _Optional[str] = ..., to_engine: _Optional[str] = ..., reason: _Optional[str] = ..., channel: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class Finding(_message.Message):
    __slots__ = ("choice", "code", "severity", "message", "channel", "onset", "detected_at", "confidence", "evidence", "engine", "attempt")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    ONSET_FIELD_NUMBER: _ClassVar[int]
    DETECTED_AT_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    choice: int
    code: str
    severity: Severity
    message: str
    channel: str
    onset: int
    detected_at: int
    confidence: float
    evidence: _struct_pb2.Struct
    engine: str
    attempt: int
    def __init__(self, choice: _Optional[int] = ..., code: _Optional[str] = ..., severity: _Optional[_Union[Severity, str]] = ..., message: _Optional[str] = ..., channel: _Optional[str] = ..., onset: _Optional[int] = ..., detected_at: _Optional[int] = ..., confidence: _Optional[float] = ..., evidence: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., engine: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class Repair(_message.Message):
    __slots__ = ("choice", "code", "message")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    choice: int
    code: str
    message: str
    def __init__(self, choice: _Optional[int] = ..., code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class Verdicts(_message.Message):
    __slots__ = ("format", "tool_choice", "execution")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    TOOL_CHOICE_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_FIELD_NUMBER: _ClassVar[int]
    format: Verdict
    tool_choice: Verdict
    execution: Verdict
    def __init__(self, format: _Optional[_Union[Verdict, str]] = ..., tool_choice: _Optional[_Union[Verdict, str]] = ..., execution: _Optional[_Union[Verdict, str]] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens", "reasoning_tokens", "wasted_tokens", "estimated")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REASONING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    WASTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    wasted_tokens: int
    estimated: bool
    def __init__(self, prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., total_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., reasoning_tokens: _Optional[int] = ..., wasted_tokens: _Optional[int] = ..., estimated: _Optional[bool] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("choice", "finish_reason", "matched_stop_text", "matched_stop_token", "usage", "verdicts", "attempts", "trace_id")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    MATCHED_STOP_TEXT_FIELD_NUMBER: _ClassVar[int]
    MATCHED_STOP_TOKEN_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    choice: int
    finish_reason: str
    matched_stop_text: str
    matched_stop_token: int
    usage: Usage
    verdicts: Verdicts
    attempts: int
    trace_id: str
    def __init__(self, choice: _Optional[int] = ..., finish_reason: _Optional[str] = ..., matched_stop_text: _Optional[str] = ..., matched_stop_token: _Optional[int] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., verdicts: _Optional[_Union[Verdicts, _Mapping]] = ..., attempts: _Optional[int] = ..., trace_id: _Optional[str] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("choice", "code", "message", "attempts", "engine_status", "retry_after", "verdicts", "usage", "trace_id")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_STATUS_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    choice: int
    code: str
    message: str
    attempts: int
    engine_status: int
    retry_after: _duration_pb2.Duration
    verdicts: Verdicts
    usage: Usage
    trace_id: str
    def __init__(self, choice: _Optional[int] = ..., code: _Optional[str] = ..., message: _Optional[str] = ..., attempts: _Optional[int] = ..., engine_status: _Optional[int] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., verdicts: _Optional[_Union[Verdicts, _Mapping]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., trace_id: _Optional[str] = ...) -> None: ...

class CheckRequest(_message.Message):
    __slots__ = ("header", "events", "openai_sse")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    OPENAI_SSE_FIELD_NUMBER: _ClassVar[int]
    header: CheckHeader
    events: CheckEvents
    openai_sse: bytes
    def __init__(self, header: _Optional[_Union[CheckHeader, _Mapping]] = ..., events: _Optional[_Union[CheckEvents, _Mapping]] = ..., openai_sse: _Optional[bytes] = ...) -> None: ...

class CheckHeader(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: GenerateRequest
    def __init__(self, request: _Optional[_Union[GenerateRequest, _Mapping]] = ...) -> None: ...

class CheckEvents(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[CheckEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[CheckEvent, _Mapping]]] = ...) -> None: ...

class CheckEvent(_message.Message):
    __slots__ = ("delta", "finish", "usage", "fault")
    DELTA_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    delta: Delta
    finish: CheckFinish
    usage: Usage
    fault: CheckFault
    def __init__(self, delta: _Optional[_Union[Delta, _Mapping]] = ..., finish: _Optional[_Union[CheckFinish, _Mapping]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., fault: _Optional[_Union[CheckFault, _Mapping]] = ...) -> None: ...

class CheckFinish(_message.Message):
    __slots__ = ("choice", "finish_reason", "matched_stop_text", "matched_stop_token")
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    MATCHED_STOP_TEXT_FIELD_NUMBER: _ClassVar[int]
    MATCHED_STOP_TOKEN_FIELD_NUMBER: _ClassVar[int]
    choice: int
    finish_reason: str
    matched_stop_text: str
    matched_stop_token: int
    def __init__(self, choice: _Optional[int] = ..., finish_reason: _Optional[str] = ..., matched_stop_text: _Optional[str] = ..., matched_stop_token: _Optional[int] = ...) -> None: ...

class CheckFault(_message.Message):
    __slots__ = ("kind", "message")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[CheckFault.Kind]
        KIND_ERROR_EVENT: _ClassVar[CheckFault.Kind]
        KIND_CUT: _ClassVar[CheckFault.Kind]
        KIND_STALL: _ClassVar[CheckFault.Kind]
    KIND_UNSPECIFIED: CheckFault.Kind
    KIND_ERROR_EVENT: CheckFault.Kind
    KIND_CUT: CheckFault.Kind
    KIND_STALL: CheckFault.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    kind: CheckFault.Kind
    message: str
    def __init__(self, kind: _Optional[_Union[CheckFault.Kind, str]] = ..., message: _Optional[str] = ...) -> None: ...

class CheckResponse(_message.Message):
    __slots__ = ("started", "delta", "finding", "repair", "finished", "failed")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    FINDING_FIELD_NUMBER: _ClassVar[int]
    REPAIR_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    started: Started
    delta: Delta
    finding: Finding
    repair: Repair
    finished: Finished
    failed: Failed
    def __init__(self, started: _Optional[_Union[Started, _Mapping]] = ..., delta: _Optional[_Union[Delta, _Mapping]] = ..., finding: _Optional[_Union[Finding, _Mapping]] = ..., repair: _Optional[_Union[Repair, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ...) -> None: ...

class ReportOutcomeRequest(_message.Message):
    __slots__ = ("trace_id", "tool_call_id", "execution", "detail")
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_ID_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    trace_id: str
    tool_call_id: str
    execution: Verdict
    detail: str
    def __init__(self, trace_id: _Optional[str] = ..., tool_call_id: _Optional[str] = ..., execution: _Optional[_Union[Verdict, str]] = ..., detail: _Optional[str] = ...) -> None: ...

class ReportOutcomeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListEnginesRequest(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class ListEnginesResponse(_message.Message):
    __slots__ = ("engines", "models")
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    engines: _containers.RepeatedCompositeFieldContainer[Engine]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    def __init__(self, engines: _Optional[_Iterable[_Union[Engine, _Mapping]]] = ..., models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ...) -> None: ...

class Engine(_message.Message):
    __slots__ = ("name", "dialect", "url", "model", "ok", "detail", "version", "image", "cluster", "precision", "state", "draining", "under_way", "failure_rate", "cause", "reopens_in")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIALECT_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    UNDER_WAY_FIELD_NUMBER: _ClassVar[int]
    FAILURE_RATE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    REOPENS_IN_FIELD_NUMBER: _ClassVar[int]
    name: str
    dialect: str
    url: str
    model: str
    ok: bool
    detail: str
    version: str
    image: str
    cluster: str
    precision: str
    state: str
    draining: bool
    under_way: int
    failure_rate: float
    cause: str
    reopens_in: float
    def __init__(self, name: _Optional[str] = ..., dialect: _Optional[str] = ..., url: _Optional[str] = ..., model: _Optional[str] = ..., ok: _Optional[bool] = ..., detail: _Optional[str] = ..., version: _Optional[str] = ..., image: _Optional[str] = ..., cluster: _Optional[str] = ..., precision: _Optional[str] = ..., state: _Optional[str] = ..., draining: _Optional[bool] = ..., under_way: _Optional[int] = ..., failure_rate: _Optional[float] = ..., cause: _Optional[str] = ..., reopens_in: _Optional[float] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("id", "engines")
    ID_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    id: str
    engines: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., engines: _Optional[_Iterable[str]] = ...) -> None: ...

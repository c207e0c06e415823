"""LocalStack's `dynamodb` and `dynamodbstreams`, answered by the server at DDB_BACKEND_URL.

LocalStack as shipped fetches a Java runtime and a closed DynamoDB engine at its first call. Here
every call goes to an engine that is already running, so that what a client meets is LocalStack's
gateway (parser, serialiser, error shape, headers) in front of an engine whose races are sound.
"""

import os
from collections.abc import Callable
from typing import Any

from botocore.model import Shape
from requests.adapters import HTTPAdapter

from localstack.aws.api import RequestContext, ServiceRequest, ServiceResponse
from localstack.aws.api.dynamodb import DynamodbApi
from localstack.aws.api.dynamodbstreams import DynamodbstreamsApi
from localstack.aws.forwarder import AwsRequestProxy, ForwardingFallbackDispatcher
from localstack.services.plugins import Service, aws_provider

# The engine has one account and one region, and writes both into its ARNs.
ENGINE_PREFIX = "arn:aws:dynamodb:dynoxide:000000000000:"

STORED_BY_USERS = {"AttributeName", "AttributeValue"}

# How many of the gateway's threads may talk to the engine at a time without opening a connection
# for one call; the client's default is 10.
CONNECTIONS = 64


@aws_provider(api="dynamodb", name="http")
def dynamodb() -> Service:
    return forwarded(DynamodbApi())


@aws_provider(api="dynamodbstreams", name="http")
def dynamodbstreams() -> Service:
    return forwarded(DynamodbstreamsApi())


def forwarded(api: DynamodbApi | DynamodbstreamsApi) -> Service:
    """Every method of LocalStack's generated API class raises NotImplementedError, and the
    dispatcher hands what is not implemented to the backend."""
    backend = AwsRequestProxy(os.environ["DDB_BACKEND_URL"])
    backend.proxy.client.session.mount("http://", HTTPAdapter(pool_maxsize=CONNECTIONS))

    def forward(context: RequestContext, request: ServiceRequest) -> ServiceResponse:
        caller_prefix = f"arn:aws:dynamodb:{context.region}:{context.account_id}:"
        asked = with_arns(
            request, context.operation.input_shape, swap(caller_prefix, ENGINE_PREFIX)
        )
        # Without an ARN in it the caller's own bytes are sent on, not a copy written anew.
        answer = backend(context, asked if asked != request else None)
        return with_arns(
            answer, context.operation.output_shape, swap(ENGINE_PREFIX, caller_prefix)
        )

    return Service.for_provider(
        api, dispatch_table_factory=lambda api: ForwardingFallbackDispatcher(api, forward)
    )


def swap(old: str, new: str) -> Callable[[str], str]:
    return lambda value: new + value[len(old) :] if value.startswith(old) else value


def with_arns(value: Any, shape: Shape | None, change: Callable[[str], str]) -> Any:
    """A copy of `value` with `change` made to its strings, but never to an item: the model tells
    what is the service's own from what a user stored."""
    if shape is None or value is None or shape.name in STORED_BY_USERS:
        return value
    match shape.type_name:
        case "structure":
            return {k: with_arns(v, shape.members.get(k), change) for k, v in value.items()}
        case "list":
            return [with_arns(v, shape.member, change) for v in value]
        case "map":
            # BatchGetItem and BatchWriteItem name their tables, by name or by ARN, in the keys.
            return {
                with_arns(k, shape.key, change): with_arns(v, shape.value, change)
                for k, v in value.items()
            }
        case "string":
            return change(value)
    return value

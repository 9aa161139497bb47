"""IncrementalAlterConfigs (44), versions 0 and 1: sets, deletes and edits single settings.

Behaviour: operations are set (0), delete (1), append to a list (2) and subtract from one (3).
Settings that are not named stay as they are. With `validate_only` nothing changes.
"""

from odradek.controller.results import ConfigAlteration
from odradek.errors import ErrorCode
from odradek.handlers.configs.config_fields import alter_resources, config_resource, fail_resources
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the settings are in force."""
    body = request.body()
    changes = (
        (
            config_resource(resource),
            [
                ConfigAlteration(config.name, config.config_operation, config.value)
                for config in resource.configs
            ],
        )
        for resource in body.resources
    )
    alter_resources(request, changes, context.controller.incremental_alter_configs)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for every resource."""
    fail_resources(request, code)
